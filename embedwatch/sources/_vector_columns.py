"""Which columns of an Arrow table hold vectors, names and groups, and how they become rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from torch import Tensor

from embedwatch.core.errors import InputError, UsageError, did_you_mean
from embedwatch.sources._messages import check_shape, choose, clean, count_of, listed, shown

__all__ = ["VectorColumns", "find_columns", "first_length", "matrix_of", "texts_of"]

FLOATS = {"halffloat": torch.float16, "float": torch.float32, "double": torch.float64}
NAME_HINTS = ("name", "word", "token", "text", "title", "id", "key")


@dataclass(frozen=True)
class VectorColumns:
    """Names of the columns that matter.

    Args:
        vectors: the column of lists, or the columns that are one dimension each.
        lists: whether it is a column of lists.
        dtype: type of the values.
        dimension: D where the table's schema tells it.
        name: column that names the rows.
        label: column that holds their groups.
        notes: what was left out.
    """

    vectors: tuple[str, ...]
    lists: bool
    dtype: torch.dtype
    dimension: int | None
    name: str | None
    label: str | None
    notes: tuple[str, ...]

    @property
    def wanted(self) -> list[str]:
        """Columns to read for a batch."""
        return list(dict.fromkeys([*self.vectors, *([self.label] if self.label is not None else [])]))


def storage(kind: Any) -> Any:
    """Return the type that an extension type, such as a fixed-shape tensor, is stored in."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def find_columns(label: str, schema: Any, *, select: str | None = None, labels: str | None = None) -> VectorColumns:
    """Return the columns that hold vectors, names and groups.

    Raises:
        InputError: if no column holds floats.
        UsageError: if several columns hold vectors, or a column that was asked for does not exist.
    """
    kinds = {field.name: storage(field.type) for field in schema}
    if labels is not None and (labels not in kinds or pa.types.is_nested(kinds[labels])):
        hint = did_you_mean(labels, kinds) or f"it has {listed(list(kinds))}"
        raise UsageError(f"{label} has no column {shown(labels)} of labels; {hint}")
    lists = {name: kind for name, kind in kinds.items() if _is_list(kind) and str(kind.value_type) in FLOATS}
    floats = [name for name, kind in kinds.items() if str(kind) in FLOATS and name != labels]
    dimension: int | None
    if lists or select is not None:
        if select is not None and select in kinds and select not in lists:
            what = shown(str(kinds[select]), 60)
            raise InputError(f"{label} column {shown(select)} is {what}, vectors must be lists of floats; convert it")
        chosen, kind = choose(label, "column", lists or dict.fromkeys(kinds), select)
        vectors, dtype = (chosen,), FLOATS[str(kind.value_type)]
        dimension = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    elif floats:
        vectors, dimension = tuple(floats), len(floats)
        dtype = max((FLOATS[str(kinds[name])] for name in floats), key=lambda dtype: dtype.itemsize)
    else:
        held = [f"{name} {kind}" for name, kind in kinds.items()]
        raise InputError(f"{label} has no column of floats or lists of floats ({listed(held)}); convert one to float32")
    if dimension is not None:
        check_shape(label, (0, dimension))
    name = _name_column(kinds, vectors, labels)
    twice = [
        column for column, count in Counter(schema.names).items() if count > 1 and column in (*vectors, labels, name)
    ]
    if twice:
        raise InputError(f"{label} has several columns called {shown(twice[0])}; rename them")
    rest = [column for column in kinds if column not in (*vectors, labels, name)]
    notes = [f"columns {listed(rest)} are no dimensions"] if rest else []
    return VectorColumns(vectors, bool(lists), dtype, dimension, name, labels, tuple(notes))


def _name_column(kinds: dict[str, Any], vectors: Sequence[str], labels: str | None) -> str | None:
    """Return the first column of texts, before it one that is called a name, after it one of whole numbers."""
    texts = [name for name, kind in kinds.items() if _is_text(kind) and name != labels]
    whole = [
        name for name, kind in kinds.items() if pa.types.is_integer(kind) and name != labels and name not in vectors
    ]
    named = [name for name in (*texts, *whole) if name.lower() in NAME_HINTS]
    return next(iter([*[name for name in named if name in texts], *texts, *named, *whole]), None)


def _plain(column: Any) -> Any:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def first_length(column: Any) -> int | None:
    """Return the length of the first list that is neither missing nor empty."""
    lengths = pa.compute.list_value_length(_plain(column)).drop_null().to_numpy(zero_copy_only=False)
    full = lengths[lengths > 0]
    return int(full[0]) if len(full) else None


def matrix_of(batch: Any, columns: VectorColumns, dimension: int, where: str, row: int) -> Tensor:
    """Return the vectors of a record batch: a missing vector is a row of NaN, a missing value is NaN.

    Args:
        batch: an Arrow record batch.
        columns: which of its columns to take.
        dimension: D.
        where: name of the file, for messages.
        row: number of the batch's first row.

    Raises:
        InputError: if a list has another length; it names the row.
    """
    rows = torch.full((len(batch), dimension), torch.nan, dtype=columns.dtype)
    matrix = rows.numpy()  # (N, D), the same memory
    if not columns.lists:
        for index, name in enumerate(columns.vectors):
            matrix[:, index] = batch.column(name).to_numpy(zero_copy_only=False)
        return rows
    column = _plain(batch.column(columns.vectors[0]))
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    lengths = pa.compute.list_value_length(column).fill_null(dimension).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != dimension)
    if len(wrong):
        raise InputError(
            f"{where} row {row + int(wrong[0]):,} has {count_of(int(lengths[wrong[0]]), 'value')} in column "
            f"{clean(columns.vectors[0], 60)!r}, the first has {dimension:,}; write vectors of one length"
        )
    matrix[valid] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
    return rows


def texts_of(column: Any) -> list[str | None]:
    """Return a column as texts; bytes that are not UTF-8 are replaced."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    return [
        value.decode("utf-8", "replace") if isinstance(value, bytes) else _text(value) for value in column.to_pylist()
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
