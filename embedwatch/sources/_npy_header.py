"""The header of the npy format, read without numpy's reader: nothing is unpickled, nothing is allocated."""

from __future__ import annotations

import ast
import struct
import warnings
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from embedwatch.core.errors import InputError
from embedwatch.sources._messages import is_shape, shown

__all__ = ["MAGIC", "NpyHeader", "read_header"]

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
"""numpy's own limit: longer headers are a way to stop the parser."""
_LENGTHS = {1: "<H", 2: "<I", 3: "<I"}


@dataclass(frozen=True)
class NpyHeader:
    """What the header says of the array, and where its values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    column_major: bool
    offset: int

    @property
    def big_endian(self) -> bool:
        """Whether the values are stored with the most significant byte first."""
        return self.dtype.newbyteorder(">") == self.dtype and self.dtype.itemsize > 1

    @property
    def end(self) -> int:
        """Where the file must end."""
        count = self.dtype.itemsize
        for axis in self.shape:
            count *= axis
        return self.offset + count

    def __str__(self) -> str:
        kind = self.dtype.newbyteorder("=").name if self.dtype.kind == "f" else str(self.dtype)
        return f"{' × '.join(map(str, self.shape))} {kind}"


def read_header(file: IO[bytes], label: str) -> NpyHeader:
    """Read the header at the current position (the start) of a file.

    Raises:
        InputError: for anything that is not an npy header.
    """
    begin = file.read(len(MAGIC) + 2)
    if begin[: len(MAGIC)] != MAGIC:
        raise InputError(
            f"{label} begins with {shown(begin[:8])}, an npy file must with {shown(MAGIC)}; is it another kind?"
        )
    major = begin[len(MAGIC)] if len(begin) == len(MAGIC) + 2 else 0
    if major not in _LENGTHS:
        raise InputError(
            f"{label} has npy version {shown(begin[len(MAGIC) :])}, known are 1 to 3; save it with numpy.save"
        )
    prefix = file.read(struct.calcsize(_LENGTHS[major]))
    if len(prefix) < struct.calcsize(_LENGTHS[major]):
        raise InputError(f"{label} ends within its header; copy it again")
    (length,) = struct.unpack(_LENGTHS[major], prefix)
    if length > MAX_HEADER:
        raise InputError(
            f"{label} promises a header of {length:,} bytes, at most {MAX_HEADER:,} are read; save it again"
        )
    text = file.read(length)
    if len(text) < length:
        raise InputError(f"{label} ends within its header; copy it again")
    shape, dtype, column_major = _parse(text, label)
    return NpyHeader(shape, dtype, column_major, len(begin) + len(prefix) + length)


def _parse(text: bytes, label: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged header may hold what Python only warns of
            fields = ast.literal_eval(text.decode("utf-8", "replace").strip())
            shape, order = fields["shape"], fields["fortran_order"]
            dtype = np.dtype(fields["descr"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError, OverflowError) as error:
        raise InputError(
            f"{label} has the header {shown(text.strip())}, which is no npy header; save it again"
        ) from error
    if not isinstance(shape, tuple) or not is_shape(shape) or not isinstance(order, bool):
        raise InputError(f"{label} has the header {shown(text.strip())}, which has no shape and order; save it again")
    return shape, dtype, order
