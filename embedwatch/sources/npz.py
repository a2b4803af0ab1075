"""npz: a zip of numpy arrays, as numpy.savez and numpy.savez_compressed write it."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, reading, require_file, rows_within
from embedwatch.sources._messages import check_shape, choose, clean, ends_early, first_line, label_of, listed
from embedwatch.sources._npy_header import NpyHeader, read_header
from embedwatch.sources._stored import dtype_error, float_type, read_rows

__all__ = ["NpzSource"]

ZIP_MAGIC = b"PK\x03\x04"
MAX_RATIO = 1_040
"""Deflate cannot shrink by more than 1,032; a member that claims more lies about its size."""
COLUMN_BLOCK_BYTES = 128 << 20
"""A column-major member is unpacked once for each block of rows of this size: slow for large ones, but bounded."""
SKIP_BYTES = 1 << 20
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeError, ValueError)


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Turn what the zip reader says of a damaged file into an `InputError`."""
    try:
        with reading(path):
            yield
    except EmbedwatchError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{label_of(path)} is a damaged zip ({first_line(error)}); copy it again") from error


class NpzSource(FileSource):
    """One matrix (N, D) of floats out of a `.npz` archive.

    The member is unpacked as a stream, a batch at a time, and its checksum is verified at the end. Sizes in the
    archive are compared with each other and with the file; none is trusted for an allocation. `select` names the array
    where there are several matrices of floats; other arrays beside them are left out.

    References:
        numpy.lib.format; PKWARE APPNOTE 6.3, sections 4.3 to 4.5.
    """

    name = "npz"
    title = "numpy archive"
    suffixes = (".npz",)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.npz`, or is a zip whose first member is an `.npy` array."""
        if has_suffix(path, cls.suffixes):
            return True
        start = head(path, 1024)
        first_name = start[30 : 30 + int.from_bytes(start[26:28], "little")]
        return start.startswith(ZIP_MAGIC) and first_name.endswith(b".npy")

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> NpzSource:
        """Read the archive's directory and the headers of its arrays."""
        cls.refuse_options(labels=labels)
        size, label = require_file(path), label_of(path)
        with undamaged(path), zipfile.ZipFile(path) as archive:
            members = {
                info.filename.removesuffix(".npy"): info
                for info in archive.infolist()
                if info.filename.endswith(".npy")
            }
            if not members:
                raise InputError(
                    f"{label} holds no .npy arrays ({listed(archive.namelist()) or 'nothing'}); is it another kind?"
                )
            headers = {name: _read_header(archive, info, _what(path, name), size) for name, info in members.items()}
        if select is None:
            matrices = {name: header for name, header in headers.items() if _is_matrix(header)}
            if not matrices and len(headers) > 1:
                held = [f"{name} {header}" for name, header in headers.items()]
                raise InputError(f"{label} holds no 2-D array of floats ({listed(held)}); save the vectors as one")
        else:
            matrices = headers
        chosen, header = choose(label, "array", matrices or headers, select)
        return cls(path, members[chosen].filename, header, select=select)

    def __init__(self, path: Path, member: str, header: NpyHeader, *, select: str | None = None) -> None:
        what = _what(path, member.removesuffix(".npy"))
        dtype = float_type(header.dtype)
        if dtype is None:
            raise dtype_error(what, header.dtype)
        rows, dimension = check_shape(what, header.shape)
        super().__init__(path, rows=rows, dimension=dimension, select=select)
        self.member, self.header, self.what, self.dtype = member, header, what, dtype

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Unpack the member from its start, a block of rows at a time."""
        rows, dimension = check_shape(self.what, self.header.shape)
        row_bytes = dimension * self.dtype.itemsize
        size = rows_within(size, row_bytes)
        with undamaged(self.path), zipfile.ZipFile(self.path) as archive:
            if self.header.column_major:
                yield from self._column_major(archive, size)
                return
            with archive.open(self.member) as file:
                _skip(file, self.header.offset)
                for start in range(0, rows, size):
                    yield Block(self._next(file, (min(size, rows - start), dimension), start * row_bytes))
                _finish(file)

    def _column_major(self, archive: zipfile.ZipFile, size: int) -> Generator[Block, None, None]:
        rows, dimension = check_shape(self.what, self.header.shape)
        item = self.dtype.itemsize
        stretch = rows_within(rows, dimension * item, COLUMN_BLOCK_BYTES)
        for start in range(0, rows, stretch):
            count = min(stretch, rows - start)
            columns = torch.empty((dimension, count), dtype=self.dtype)
            with archive.open(self.member) as file:
                _skip(file, self.header.offset)
                for index in range(dimension):
                    _skip(file, start * item)
                    columns[index] = self._next(file, (1, count), (index * rows + start) * item)[0]
                    _skip(file, (rows - start - count) * item)
                _finish(file)
            for part in columns.split(size, dim=1):
                yield Block(part.T.contiguous())  # (n, D)

    def _next(self, file: IO[bytes], shape: tuple[int, int], done: int) -> Tensor:
        values = read_rows(file, shape, self.dtype, big_endian=self.header.big_endian)
        if values is None:
            raise ends_early(self.what, self.header.offset + done, self.header.end, str(self.header))
        return values


def _what(path: Path, name: str) -> str:
    return f"{label_of(path)} ({clean(name, 60)})"


def _is_matrix(header: NpyHeader) -> bool:
    return len(header.shape) == 2 and float_type(header.dtype) is not None


def _read_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str, size: int) -> NpyHeader:
    if info.flag_bits & 0x1:
        raise InputError(f"{what} is encrypted; unpack it with its password and save it again")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{what} is packed by method {info.compress_type}; save it with numpy.savez_compressed")
    if info.compress_size > size:
        raise ends_early(what, size, info.compress_size, "packed", where="directory")
    if info.file_size > MAX_RATIO * info.compress_size + MAX_RATIO:
        raise InputError(
            f"{what} claims {info.file_size:,} bytes in {info.compress_size:,} packed ones, at most {MAX_RATIO:,} "
            "times as many are possible; copy it again"
        )
    with archive.open(info) as file:
        header = read_header(file, what)
    if header.dtype.hasobject:  # pickled: its size says nothing, and it is never read
        return header
    if info.file_size < header.end:
        raise ends_early(what, info.file_size, header.end, str(header))
    if info.file_size > header.end:
        raise InputError(
            f"{what} has {info.file_size:,} bytes, its header promises {header.end:,} ({header}); save it again"
        )
    return header


def _skip(file: IO[bytes], count: int) -> None:
    while count > 0:
        got = len(file.read(min(count, SKIP_BYTES)))
        if not got:
            raise EOFError("it ends early")
        count -= got


def _finish(file: IO[bytes]) -> None:
    """Read to the end: only there is the checksum compared."""
    while file.read(SKIP_BYTES):
        pass
