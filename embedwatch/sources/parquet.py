"""Parquet: a column of vectors, or a column for each dimension, in a file or a folder of files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from hashlib import blake2b
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import fingerprint, has_suffix, head, rows_within
from embedwatch.sources._groups import encode_groups
from embedwatch.sources._messages import MAX_DIMENSION, check_shape, count_of, label_of
from embedwatch.sources._parquet_files import SUFFIXES, has_parts, opened, parts_of, read_names
from embedwatch.sources._vector_columns import find_columns, first_length, matrix_of, texts_of

__all__ = ["ParquetSource"]

MAGIC = b"PAR1"
PEEKED_ROWS = 64
SUSPICIOUS = 4
"""Lists on average so many times as long as the first are refused by the footer; shorter ones by their row."""


class ParquetSource(FileSource):
    """Vectors in a Parquet file, or in a folder of Parquet files that are read in the order of their names.

    The vectors are a column of lists of floats (of fixed or equal length), or one column of floats for each dimension.
    `select` names the column of lists where there are several, `labels` the column that holds the group of each row.
    Columns of whole numbers are never dimensions. Missing vectors become rows of NaN. Read in record batches: a row
    group is never held whole.

    References:
        https://parquet.apache.org/docs/file-format; pyarrow.parquet.ParquetFile.iter_batches.
    """

    name = "parquet"
    title = "Parquet"
    suffixes = SUFFIXES

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.parquet` or begins with the magic bytes, or is a folder with such files."""
        return has_suffix(path, cls.suffixes) or head(path, len(MAGIC)) == MAGIC or has_parts(path)

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> ParquetSource:
        """Read the footers, and where lists have no fixed length the first vector."""
        return cls(path, select=select, labels=labels)

    def __init__(self, path: Path, *, select: str | None = None, labels: str | None = None) -> None:
        self.parts, self.select, self.labels = parts_of(path), select, labels
        self._counts: list[int] = []
        for part in self.parts:
            with opened(part) as file:
                if not self._counts:
                    self.columns = find_columns(label_of(path), file.schema_arrow, select=select, labels=labels)
                self._check_part(part, file.schema_arrow)
                self._counts.append(file.metadata.num_rows)
        super().__init__(path, rows=sum(self._counts), dimension=self.columns.dimension, select=select, labels=labels)
        if self.dimension is None:
            self.dimension = self._first_length()
        self.notes = (
            *self.columns.notes,
            *([f"{len(self.parts):,} files are read as one"] if len(self.parts) > 1 else []),
            "missing vectors, if there are any, are read as rows of NaN",
        )

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read record batches, file after file."""
        dimension, columns = self.dimension, self.columns
        if dimension is None:  # no rows
            return
        size = rows_within(size, dimension * columns.dtype.itemsize)
        for part in self.parts:
            row = 0
            with opened(part) as file:
                self._check_lists(part, file.metadata, dimension)
                for batch in file.iter_batches(size, columns=columns.wanted, use_threads=False):
                    rows = matrix_of(batch, columns, dimension, label_of(part), row)
                    row += len(rows)
                    if columns.label is None:
                        yield Block(rows)
                    else:
                        yield Block(rows, *encode_groups(texts_of(batch.column(columns.label))))

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the texts of the column that names the rows, the row numbers where there is none."""
        column = self.columns.name
        if column is None:
            return super().names(rows)
        total = sum(self._counts)
        beyond = [row for row in rows if not 0 <= row < total]
        if beyond:
            raise UsageError(
                f"`rows` must be row numbers of {self.label}, got {beyond[0]}; it has {count_of(total, 'row')}"
            )
        starts = list(accumulate(self._counts, initial=0))
        found: dict[int, str] = {}
        for index, members in groupby(sorted(set(rows)), key=lambda row: bisect_right(starts, row) - 1):
            with opened(self.parts[index]) as file:
                found.update(read_names(file, column, starts[index], list(members)))
        return [found[row] for row in rows]

    def fingerprint(self) -> str:
        """Return 16 hex digits over names, sizes, first and last MiB of all files, and the options."""
        if not self.path.is_dir():
            return super().fingerprint()
        digest = blake2b(f"{self.select!r} {self.labels!r}".encode("utf-8", "replace"), digest_size=8)
        for part in self.parts:
            digest.update(f"{part.relative_to(self.path)} {fingerprint(part)}\n".encode("utf-8", "replace"))
        return digest.hexdigest()

    def _check_part(self, part: Path, schema: Any) -> None:
        """Refuse a part of a folder whose vectors are of another kind than the first one's."""
        own = find_columns(
            label_of(part), schema, select=self.columns.vectors[0] if self.columns.lists else None, labels=self.labels
        )
        mine = self.columns
        if (own.vectors, own.dtype, own.dimension, own.name) != (mine.vectors, mine.dtype, mine.dimension, mine.name):
            raise InputError(
                f"{label_of(part)} has other columns or types than {label_of(self.parts[0])} in the same folder; "
                "write them with one schema"
            )

    def _check_lists(self, part: Path, metadata: Any, dimension: int) -> None:
        """Refuse lists that are far longer than the first before one of them is read whole."""
        for group in (metadata.row_group(index) for index in range(metadata.num_row_groups)):
            for chunk in (group.column(index) for index in range(group.num_columns)):
                own = chunk.path_in_schema.split(".")[0] == self.columns.vectors[0]
                if own and chunk.num_values > max(SUSPICIOUS * dimension * group.num_rows, MAX_DIMENSION):
                    raise InputError(
                        f"{label_of(part)} has {chunk.num_values:,} values in {count_of(group.num_rows, 'row')} of "
                        f"{dimension:,}; write vectors of one length"
                    )

    def _first_length(self) -> int | None:
        if not self.rows:
            return None
        for part in self.parts:
            with opened(part) as file:
                self._check_lists(part, file.metadata, MAX_DIMENSION)
                for batch in file.iter_batches(PEEKED_ROWS, columns=list(self.columns.vectors), use_threads=False):
                    length = first_length(batch.column(self.columns.vectors[0]))
                    if length is not None:
                        return check_shape(self.label, (self.rows, length))[1]
        raise InputError(
            f"{self.label} has only missing or empty vectors, so their dimension is unknown; write them again"
        )
