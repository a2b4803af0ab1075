"""npy: one matrix, as numpy.save writes it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from embedwatch.core.errors import InputError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, reading, require_file
from embedwatch.sources._messages import check_shape, ends_early, label_of
from embedwatch.sources._npy_header import MAGIC, read_header
from embedwatch.sources._stored import StoredMatrix, dtype_error, float_type

__all__ = ["NpySource"]


class NpySource(FileSource):
    """A matrix (N, D) of floats in numpy's `.npy` format.

    float16, float32 and float64, of either byte order, row-major or column-major. The header is compared with the size
    of the file before anything is allocated; pickled arrays are refused.

    References:
        numpy.lib.format, "NPY format", versions 1.0 to 3.0.
    """

    name = "npy"
    title = "numpy array"
    suffixes = (".npy",)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.npy` or begins with the format's magic bytes."""
        return has_suffix(path, cls.suffixes) or head(path, len(MAGIC)) == MAGIC

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> NpySource:
        """Read the header."""
        cls.refuse_options(select=select, labels=labels)
        return cls(path)

    def __init__(self, path: Path) -> None:
        label, size = label_of(path), require_file(path)
        with reading(path), path.open("rb") as file:
            header = read_header(file, label)
        dtype = float_type(header.dtype)
        if dtype is None:
            raise dtype_error(label, header.dtype)
        rows, dimension = check_shape(label, header.shape)
        if size < header.end:
            raise ends_early(label, size, header.end, str(header))
        if size > header.end:
            raise InputError(
                f"{label} has {size:,} bytes, its header promises {header.end:,} ({header}); "
                "save each array in a file of its own"
            )
        self.matrix = StoredMatrix(
            path,
            label,
            header.offset,
            rows,
            dimension,
            dtype,
            big_endian=header.big_endian,
            column_major=header.column_major,
        )
        super().__init__(path, rows=rows, dimension=dimension)

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read the rows where they lie."""
        for rows in self.matrix.blocks(size):
            yield Block(rows)
