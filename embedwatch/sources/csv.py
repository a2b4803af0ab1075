"""CSV, TSV and other tables of delimited text: a row on each line, a dimension in each column of numbers."""

from __future__ import annotations

import csv
from collections.abc import Generator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from embedwatch.core.errors import InputError
from embedwatch.sources._csv_dialect import find_dialect
from embedwatch.sources._csv_layout import read_layout, remarks
from embedwatch.sources._csv_rows import MAX_LINE, chunks
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, require_file
from embedwatch.sources._groups import encode_groups
from embedwatch.sources._messages import first_line, label_of
from embedwatch.sources._word_names import WordNames
from embedwatch.sources._word_text import sample_lines

__all__ = ["CsvSource"]

ENOUGH_NUMBERS = 0.5


class CsvSource(FileSource):
    """A table of delimited text whose columns of numbers are the dimensions, read as float32.

    Separators (comma, tab, semicolon, bar, single blanks), decimal comma, quotes and a header are recognised from the
    first rows. Columns of text are no dimensions: the first of them names the rows. Columns of whole numbers that are
    called `id`, `index` or the like number the rows; `notes` says which were left out. Empty cells and `NA` are NaN.
    `labels` is the column that holds the group of each row; columns without a header are called 1, 2, ….

    References:
        RFC 4180, "Common Format and MIME Type for Comma-Separated Values (CSV) Files".
    """

    name = "csv"
    title = "CSV, TSV or a matrix in text"
    suffixes = (".csv", ".tsv")

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it ends in `.csv` or `.tsv`, or its first lines are a table with mostly numbers in it."""
        if has_suffix(path, cls.suffixes):
            return True
        lines = [line.decode("utf-8", "replace") + "\n" for line in sample_lines(head(path))]
        dialect, score = find_dialect(lines[remarks(lines, find_dialect(lines)[0]) :])
        # With blanks as separators any word would be a cell: only a matrix of numbers is taken for a table.
        return score == 1.0 if dialect.delimiter == " " else score >= ENOUGH_NUMBERS

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> CsvSource:
        """Read the first lines."""
        cls.refuse_options(select=select)
        require_file(path)
        return cls(path, labels=labels)

    def __init__(self, path: Path, *, labels: str | None = None) -> None:
        self.layout = layout = read_layout(path, labels=labels, tabs=path.name.lower().endswith(".tsv"))
        super().__init__(path, rows=None, dimension=len(layout.dimensions), labels=labels, notes=layout.notes)
        self._names = WordNames(path, label_of(path), layout.offset, self._read_names)

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read and parse the lines in chunks, and note where each began."""
        row = 0
        with self.path.open("rb") as file:
            file.seek(self.layout.offset)
            for chunk in chunks(self.path, file, self.layout, size):
                values, labels = chunk.parse()
                for start in range(0, len(values), size):
                    part = values[start : start + size].clone() if len(values) > size else values
                    yield Block(part, *(encode_groups(labels[start : start + size]) if labels else ()))
                row += len(values)
                self._names.note(row, file.tell())

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the cells of the column that names the rows, the row numbers where there is none."""
        return super().names(rows) if self.layout.name is None else self._names.find(rows)

    def _read_names(self, file: BinaryIO, count: int) -> list[bytes]:
        column, dialect = self.layout.name or 0, self.layout.dialect
        lines = (line.decode("utf-8", "replace") for line in iter(lambda: file.readline(MAX_LINE), b""))
        try:
            rows = list(islice(filter(None, csv.reader(lines, **dialect.format)), count))
        except csv.Error as error:
            raise InputError(
                f"{self.label} has a name that cannot be read ({first_line(error)}); correct it"
            ) from error
        return [row[column].encode("utf-8", "replace") if column < len(row) else b"" for row in rows]
