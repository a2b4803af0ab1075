"""VectorBatch: rows of one Space, and what several statistics need of them, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from embedwatch.batch.rows import Rows, check_column, check_matrix
from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import NO_ID
from embedwatch.geometry.norms import SAFE_NORM, row_norms
from embedwatch.hashing import combine, hash_rows, hash_text

__all__ = ["FLOAT32_MAX", "BatchMoments", "VectorBatch"]

FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT32_LEAST = 2.0**-149


class BatchMoments(NamedTuple):
    """Moments of a batch's finite rows, in float64.

    Args:
        number: of rows.
        mean: (D,).
        scatter: `Σ (x - mean)(x - mean)ᵀ`, (D, D), or its diagonal, (D,).
    """

    number: int
    mean: Tensor
    scatter: Tensor


@dataclass(eq=False)
class VectorBatch(Rows):
    """Rows of one Space.

    Args:
        rows: (N, D) floating point, on any device. Never modified.
        ids: (N,) int64 row numbers in the source, each used once. With them a row is sampled by its identity and named.
            Without them it is sampled by its content, so that equal rows count once in samples.
        labels: (N,) int64 index into `groups`, -1 for none.
        groups: names of the groups.
        source: name of the source; together with the id it is a row's identity.
        segment: segment of the Space.
        inputs: (N,) int64 identity of what each row was made of, a token or a text: rows of one input have the same.
        order: (N,) int64 place of each row in its stream, without gaps, where the ids have some or are missing.
    """

    kind: ClassVar[str] = "vectors"

    rows: Tensor
    ids: Tensor | None = None
    labels: Tensor | None = None
    groups: Sequence[str] = ()
    source: str = ""
    segment: str = "all"
    inputs: Tensor | None = None
    order: Tensor | None = None

    def __post_init__(self) -> None:
        check_matrix("rows", self.rows)
        check_column("ids", self.ids, len(self))
        check_column("labels", self.labels, len(self))
        check_column("inputs", self.inputs, len(self))
        check_column("order", self.order, len(self))
        if self.labels is not None and len(self) and int(self.labels.max()) >= len(self.groups):
            raise UsageError(
                f"`labels` must index into {len(self.groups)} `groups`, got {int(self.labels.max())}; name every group"
            )
        self.rows = self.rows.detach()

    @property
    def numbers(self) -> Tensor:
        """The row numbers, `NO_ID` for each where the rows have none. Shape: (N,) int64."""
        if self.ids is not None:
            return self.ids
        return torch.full((len(self),), NO_ID, dtype=torch.int64, device=self.rows.device)

    @property
    def dimension(self) -> int:
        """D."""
        return self.rows.shape[1]

    @cached_property
    def norms(self) -> Tensor:
        """Euclidean norm of each row, in float64; not finite for rows that hold NaN or Inf. Shape: (N,).

        What float32 cannot tell from zero, which only float64 rows can be, counts as zero.
        """
        norms = row_norms(self.rows)
        return torch.where(norms < FLOAT32_LEAST, 0.0, norms)

    @cached_property
    def finite(self) -> Tensor:
        """Rows without NaN and Inf; a float64 value beyond the range of float32 counts as Inf. Shape: (N,) bool."""
        if self.rows.dtype == torch.float64:
            return self.rows.abs().amax(1) <= FLOAT32_MAX
        return torch.isfinite(self.norms)

    def take(self, index: Tensor | slice) -> VectorBatch:
        """Return some of the rows, chosen by a mask, by positions or by a slice; what is cached goes with them."""
        taken = super().take(index)
        for name in ("norms", "content"):
            if name in self.__dict__:
                taken.__dict__[name] = self.__dict__[name][index]
        return taken

    def ordered(self, start: int) -> VectorBatch:
        """Return the batch with places in a stream from this one on; what is cached goes with it."""
        taken = self.take(slice(None))
        taken.order = torch.arange(start, start + len(self))
        return taken

    @classmethod
    def concat(cls, batches: Sequence[VectorBatch]) -> VectorBatch:
        """Join batches of one source; their groups share one table afterwards."""
        groups = list(dict.fromkeys(group for batch in batches for group in batch.groups))
        return super().concat([_relabelled(batch, groups) for batch in batches])

    @property
    def clean(self) -> VectorBatch:
        """The finite rows, in float32, or in float64 where float32 could not hold their squares."""
        return self if self._cleaned is None else self._cleaned  # a batch without rows is false

    @property
    def directed(self) -> VectorBatch:
        """The rows of `clean` that have a direction: all but the zero rows."""
        clean = self.clean
        return clean if clean._nonzero is None else clean._nonzero

    @cached_property
    def _cleaned(self) -> VectorBatch | None:
        """The batch `clean` where it is another one: a batch that held itself would stay until a garbage collection."""
        batch = self if bool(self.finite.all()) else self.take(self.finite)
        wide = batch.rows.dtype == torch.float64 or bool(_is_extreme(batch.norms).any())
        dtype = torch.float64 if wide else torch.float32
        if batch.rows.dtype == dtype:
            return None if batch is self else batch
        if dtype == torch.float64:
            _ = batch.content  # cached before the bits change
        converted = batch.take(slice(None))
        converted.rows = batch.rows.to(dtype)
        return converted

    @cached_property
    def _nonzero(self) -> VectorBatch | None:
        nonzero = self.norms > 0
        return None if bool(nonzero.all()) else self.take(nonzero)

    @cached_property
    def unit(self) -> Tensor:
        """The rows of `directed`, scaled to norm 1, in float32 unless given in float64. Shape: (M, D).

        A row's unit row does not depend on the others of its batch, also where some need float64 to be scaled.
        """
        batch = self.directed
        if self.rows.dtype == torch.float64:
            return batch.rows * batch.norms.reciprocal()[:, None]  # (M, D)
        unit = batch.rows.float() * batch.norms.reciprocal().float()[:, None]  # (M, D)
        if batch.rows.dtype == torch.float64:
            hard = _is_extreme(batch.norms)
            unit[hard] = (batch.rows[hard] / batch.norms[hard, None]).float()
        return unit

    @cached_property
    def _centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """A rough mean, the rows without it, and the rest that rounding left: squares of these keep a small spread."""
        rows = self.clean.rows
        rough = rows.mean(0)
        centred = rows - rough  # (N, D)
        return rough, centred, centred.mean(0).double()

    @cached_property
    def moments(self) -> BatchMoments:
        """Number, mean and scatter matrix of the rows of `clean`: one product of matrices."""
        count = len(self.clean)
        if count == 0:
            zero = torch.zeros(self.dimension, dtype=torch.float64, device=self.rows.device)
            return BatchMoments(0, zero, zero.new_zeros(self.dimension, self.dimension))
        rough, centred, rest = self._centred
        scatter = (centred.T @ centred).double() - count * torch.outer(rest, rest)  # (D, D)
        return BatchMoments(count, rough.double() + rest, scatter)

    @cached_property
    def variances(self) -> BatchMoments:
        """Number, mean and the diagonal of the scatter matrix of the rows of `clean`, without the product."""
        count = len(self.clean)
        if count == 0:
            zero = torch.zeros(self.dimension, dtype=torch.float64, device=self.rows.device)
            return BatchMoments(0, zero, zero)
        if "moments" in self.__dict__:
            return BatchMoments(count, self.moments.mean, self.moments.scatter.diagonal())
        rough, centred, rest = self._centred
        return BatchMoments(count, rough.double() + rest, centred.square().sum(0).double() - count * rest.square())

    @cached_property
    def content(self) -> Tensor:
        """64-bit hash of each row's bits. Shape: (N,) int64."""
        return hash_rows(self.rows)

    @cached_property
    def keys(self) -> Tensor:
        """64-bit identity of each row: source and row number, or its content where it has no number. (N,) int64."""
        return self.content if self.ids is None else combine(self.ids, hash_text(self.source))


def _is_extreme(norms: Tensor) -> Tensor:
    """Return which rows have squares, or a reciprocal, that float32 does not hold well. Shape: (N,) -> (N,) bool."""
    return (norms > SAFE_NORM) | ((norms > 0) & (norms < 1 / SAFE_NORM))


def _relabelled(batch: VectorBatch, groups: list[str]) -> VectorBatch:
    """Return the batch with labels that index into these groups."""
    if batch.labels is None:
        return batch
    table = torch.tensor([groups.index(group) for group in batch.groups] + [-1], device=batch.labels.device)
    return replace(batch, labels=table[batch.labels], groups=groups)
