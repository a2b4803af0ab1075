"""What batches of rows share, and what is asked of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import accumulate
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["Rows", "check_column", "check_matrix", "check_numbers"]

RowsT = TypeVar("RowsT", bound="Rows")


class Rows:
    """What batches of rows share: a length, and being cut and joined along their rows.

    A field that is a tensor holds one entry for each row; everything else belongs to the batch as a whole.
    """

    def __len__(self) -> int:
        return len(next(value for value in vars(self).values() if isinstance(value, Tensor)))

    def take(self: RowsT, index: Tensor | slice) -> RowsT:
        """Return some of the rows, chosen by a mask, by positions or by a slice."""
        chosen = {field.name: getattr(self, field.name) for field in fields(cast("Any", self))}
        return type(self)(
            **{name: value[index] if isinstance(value, Tensor) else value for name, value in chosen.items()}
        )

    def split(self: RowsT, sizes: Sequence[int]) -> list[RowsT]:
        """Cut into consecutive batches of these sizes."""
        ends = list(accumulate(sizes))
        return [self.take(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def chunks(self: RowsT, size: int) -> Iterator[RowsT]:
        """Yield consecutive batches of this size, the last one shorter; none where there are no rows."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    @classmethod
    def concat(cls: type[RowsT], batches: Sequence[RowsT]) -> RowsT:
        """Join batches of one source; what belongs to a batch as a whole is taken from the first."""
        first = batches[0]
        joined = {field.name: getattr(first, field.name) for field in fields(cast("Any", first))}
        for name in joined:
            columns = [getattr(batch, name) for batch in batches]
            given = sum(isinstance(column, Tensor) for column in columns)
            if given == len(columns):
                joined[name] = torch.cat(columns)
            elif given:
                raise UsageError(
                    f"all batches or none must have `{name}`, got {given} of {len(columns)}; give it to all"
                )
        return cls(**joined)


def check_matrix(name: str, rows: Tensor) -> None:
    """Refuse what is no matrix of numbers, (N, D)."""
    if not isinstance(rows, Tensor):
        raise UsageError(f"`{name}` must be a torch tensor (N, D), got {type(rows).__name__}; use torch.as_tensor")
    if rows.ndim != 2:
        raise UsageError(
            f"`{name}` must be a 2-D tensor (N, D), got shape {tuple(rows.shape)}; flatten batch and position first"
        )
    if not rows.is_floating_point():
        raise UsageError(f"`{name}` must be floating point, got {rows.dtype}; convert with .float()")
    if rows.shape[1] == 0:
        raise UsageError(f"`{name}` must have at least one dimension, got shape {tuple(rows.shape)}")


def check_column(name: str, column: Tensor | None, count: int) -> None:
    """Refuse a column that has not one int64 for each row."""
    if column is not None and (column.shape != (count,) or column.dtype != torch.int64):
        raise UsageError(
            f"`{name}` must be int64 of shape ({count},), one for each row, got {column.dtype} {tuple(column.shape)}"
        )


def check_numbers(name: str, column: Tensor | None, count: int) -> None:
    """Refuse a column that has not one number for each row."""
    if column is not None and (column.shape != (count,) or not column.is_floating_point()):
        raise UsageError(
            f"`{name}` must be floating point of shape ({count},), one for each row, "
            f"got {column.dtype} {tuple(column.shape)}"
        )
