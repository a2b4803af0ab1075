"""Matrices of floats as they lie in a file: what may be read, and reading a stretch of rows at a time.

Rows are read at their position in the file, not through a memory map: where a mapped file is cut while it is read (a
copy that starts again, a full disk, NFS) the process dies of SIGBUS; a read that comes back short is an `InputError`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.sources._files import fill, rows_within
from embedwatch.sources._messages import ends_early

__all__ = ["StoredMatrix", "dtype_error", "float_type", "native", "read_rows"]

FLOAT_TYPES = {2: torch.float16, 4: torch.float32, 8: torch.float64}
COLUMN_BLOCK_BYTES = 4 << 20
"""A column-major matrix is read in blocks of rows of this size, however few rows a batch takes."""
_SWAP = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def float_type(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Return the torch type of a numpy floating type, None for all that cannot be vectors."""
    return FLOAT_TYPES.get(dtype.itemsize) if dtype.kind == "f" else None


def dtype_error(label: str, dtype: np.dtype[Any]) -> InputError:
    """Return the error that says what an array holds and how to convert it."""
    rule = "vectors must be float16, float32 or float64"
    if dtype.hasobject:
        return InputError(
            f"{label} holds Python objects, which only unpickling could read, and embedwatch never unpickles; "
            "save numpy.stack(list(array)).astype(numpy.float32)"
        )
    if dtype.names:
        fix = "save numpy.lib.recfunctions.structured_to_unstructured(array).astype(numpy.float32)"
        return InputError(f"{label} holds records of {len(dtype.names)} fields, {rule}; {fix}")
    kinds = {
        "b": ("bool", "save array.astype(numpy.float32)"),
        "i": (str(dtype), "save array.astype(numpy.float32), times the scale if they are quantised"),
        "u": (str(dtype), "save array.astype(numpy.float32), times the scale if they are quantised"),
        "f": (str(dtype), "save array.astype(numpy.float64)"),
        "c": (str(dtype), "save its real and imaginary parts as dimensions, array.view(numpy.float32)"),
        "U": ("text", "save array.astype(numpy.float32) if they are numbers"),
        "S": ("bytes", "save array.astype(numpy.float32) if they are numbers"),
        "V": (f"raw {dtype.itemsize}-byte values", "save array.astype(numpy.float32), also where it was bfloat16"),
    }
    what, fix = kinds.get(dtype.kind, (str(dtype), "save array.astype(numpy.float32)"))
    return InputError(f"{label} holds {what}, {rule}; {fix}")


def raw_view(rows: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor, writable."""
    return rows.view(torch.uint8).numpy().reshape(-1).data


def native(rows: Tensor, *, big_endian: bool) -> None:
    """Bring the bytes of freshly read values into this machine's order, in place."""
    if big_endian == (sys.byteorder == "little"):
        words = rows.view(torch.uint8).numpy().view(_SWAP[rows.element_size()])
        words.byteswap(inplace=True)


def read_rows(file: IO[bytes], shape: tuple[int, int], dtype: torch.dtype, *, big_endian: bool) -> Tensor | None:
    """Read the next values of a file into a matrix of its own memory; None where the file ends before it is full."""
    rows = torch.empty(shape, dtype=dtype)
    if fill(file, raw_view(rows)) < rows.numel() * rows.element_size():
        return None
    native(rows, big_endian=big_endian)
    return rows


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix (N, D) at a known place in a file, row after row or column after column."""

    path: Path
    label: str
    offset: int
    rows: int
    dimension: int
    dtype: torch.dtype
    big_endian: bool = False
    column_major: bool = False

    @property
    def end(self) -> int:
        """Position in the file behind the last value."""
        return self.offset + self.rows * self.dimension * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.rows} × {self.dimension} {str(self.dtype).removeprefix('torch.')}"

    def blocks(self, size: int) -> Generator[Tensor, None, None]:
        """Yield the rows in order, at most `size` at a time, each block in memory of its own."""
        row_bytes = self.dimension * self.dtype.itemsize
        size = rows_within(size, row_bytes)
        with self.path.open("rb", buffering=0) as file:
            if not self.column_major:
                file.seek(self.offset)
                for start in range(0, self.rows, size):
                    shape = (min(size, self.rows - start), self.dimension)
                    yield self._whole(read_rows(file, shape, self.dtype, big_endian=self.big_endian))
                return
            stretch = max(size, rows_within(self.rows, row_bytes, COLUMN_BLOCK_BYTES))
            for start in range(0, self.rows, stretch):
                columns = self._columns(file, start, min(stretch, self.rows - start))  # (D, n)
                for part in columns.split(size, dim=1):
                    yield part.T.contiguous()  # (n, D)

    def _columns(self, file: IO[bytes], start: int, count: int) -> Tensor:
        columns = torch.empty((self.dimension, count), dtype=self.dtype)
        for index, column in enumerate(columns):
            file.seek(self.offset + (index * self.rows + start) * self.dtype.itemsize)
            if fill(file, raw_view(column)) < count * self.dtype.itemsize:
                self._whole(None)
        native(columns, big_endian=self.big_endian)
        return columns

    def _whole(self, rows: Tensor | None) -> Tensor:
        if rows is None:
            raise ends_early(self.label, self.path.stat().st_size, self.end, str(self))
        return rows
