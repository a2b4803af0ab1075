"""Rows written to a file as they come: npy, Parquet or safetensors, whole or not at all.

What is written is read again by the Sources of these formats.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import InputError, UsageError
from embedwatch.whole_files import is_special

__all__ = ["ENDINGS", "RowFile", "check_output", "write_rows"]

HEADER_BYTES = 256
"""Kept free at the beginning of a file for what is known at its end, the number of rows."""
NPY_MAGIC = b"\x93NUMPY\x01\x00"
VECTORS, IDS, ID_COLUMN, VECTOR_COLUMN = "vectors", "ids", "id", "vector"


class RowFile(Protocol):
    """A file that grows."""

    def add(self, rows: Tensor, ids: Tensor, names: Sequence[str] | None) -> None:
        """Append rows (N, D) float32 with their numbers (N,), and what people call them."""

    def end(self) -> None:
        """Write what is known only now."""

    def close(self) -> None:
        """Let go of what is held, whether all was written or not."""


class _Npy:
    """A matrix of float32. Rows are their numbers, so others cannot be kept."""

    def __init__(self, file: IO[bytes], dimension: int) -> None:
        self._file, self._dimension, self._rows = file, dimension, 0
        file.write(bytes(HEADER_BYTES))

    def add(self, rows: Tensor, ids: Tensor, names: Sequence[str] | None) -> None:
        del names
        if not torch.equal(ids, torch.arange(self._rows, self._rows + len(rows))):
            raise UsageError("`output` must keep ids that are no row numbers, got .npy; write .parquet or .safetensors")
        self._file.write(_bytes(rows))
        self._rows += len(rows)

    def end(self) -> None:
        shape = f"({self._rows}, {self._dimension})"
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        length = HEADER_BYTES - len(NPY_MAGIC) - 2
        self._file.seek(0)
        self._file.write(NPY_MAGIC + struct.pack("<H", length) + header.ljust(length - 1) + b"\n")

    def close(self) -> None:
        pass


class _Safetensors:
    """A tensor `vectors`, and one of `ids` where they are no row numbers."""

    def __init__(self, file: IO[bytes], dimension: int) -> None:
        self._file, self._dimension, self._rows = file, dimension, 0
        self._ids: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this
        self._plain = True
        file.write(bytes(HEADER_BYTES))

    def add(self, rows: Tensor, ids: Tensor, names: Sequence[str] | None) -> None:
        del names
        self._plain = self._plain and torch.equal(ids, torch.arange(self._rows, self._rows + len(rows)))
        self._ids.write(ids.to(torch.int64).contiguous().numpy().astype("<i8").tobytes())
        self._file.write(_bytes(rows))
        self._rows += len(rows)

    def end(self) -> None:
        size = 4 * self._rows * self._dimension
        about = {VECTORS: {"dtype": "F32", "shape": [self._rows, self._dimension], "data_offsets": [0, size]}}
        if not self._plain:
            about[IDS] = {"dtype": "I64", "shape": [self._rows], "data_offsets": [size, size + 8 * self._rows]}
            self._ids.seek(0)
            while part := self._ids.read(1 << 20):
                self._file.write(part)
        header = json.dumps(about).encode().ljust(HEADER_BYTES - 8)
        self._file.seek(0)
        self._file.write(struct.pack("<Q", len(header)) + header)

    def close(self) -> None:
        self._ids.close()


class _Parquet:
    """A column `id` of names, or of row numbers, and a column `vector` of lists of one length."""

    def __init__(self, file: IO[bytes], dimension: int) -> None:
        self._file, self._dimension, self._named = file, dimension, False
        self._writer: Any = None

    def _open(self, *, named: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet

        vector = pa.list_(pa.float32(), self._dimension)
        schema = pa.schema([(ID_COLUMN, pa.string() if named else pa.int64()), (VECTOR_COLUMN, vector)])
        self._named, self._writer = named, pa.parquet.ParquetWriter(self._file, schema)

    def add(self, rows: Tensor, ids: Tensor, names: Sequence[str] | None) -> None:
        import pyarrow as pa

        if self._writer is None:
            self._open(named=names is not None)
        if (names is None) == self._named:
            raise UsageError("`names` must be given for all rows or for none, got both; leave them out")
        values = pa.array(rows.contiguous().numpy().reshape(-1), pa.float32())
        column = pa.FixedSizeListArray.from_arrays(values, self._dimension)
        told = pa.array(ids.numpy(), pa.int64()) if names is None else pa.array(list(names), pa.string())
        self._writer.write_batch(pa.RecordBatch.from_arrays([told, column], schema=self._writer.schema))

    def end(self) -> None:
        if self._writer is None:
            self._open(named=False)
        self._writer.close()
        self._writer = None

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


ENDINGS: dict[str, Callable[[IO[bytes], int], RowFile]] = {
    ".npy": _Npy,
    ".parquet": _Parquet,
    ".pq": _Parquet,
    ".safetensors": _Safetensors,
}


def check_output(path: Path) -> None:
    """Refuse a name whose ending is no format, and what is no file.

    Raises:
        UsageError: naming the endings that are, or saying what is there.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"`output` must end in .npy, .parquet or .safetensors, got {path.name}; choose one")
    if is_special(path):
        raise UsageError(f"`output` must be a file, got {path.name}, a device or a pipe; choose another name")


@contextmanager
def write_rows(path: Path, dimension: int) -> Iterator[RowFile]:
    """Yield a file to add rows to; it gets its name when all is written, and is gone if anything fails.

    Raises:
        UsageError: if the ending is no format.
        InputError: if it cannot be written.
    """
    check_output(path)
    growing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with growing.open("wb") as file:
            rows = ENDINGS[path.suffix.lower()](file, dimension)
            try:
                yield rows
                rows.end()
            finally:
                rows.close()
            file.flush()
            os.fsync(file.fileno())
        growing.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}; is there room?") from error
    finally:
        with suppress(OSError):
            growing.unlink(missing_ok=True)


def _bytes(rows: Tensor) -> memoryview:
    return np.ascontiguousarray(rows.float().numpy(), dtype="<f4").data.cast("B")
