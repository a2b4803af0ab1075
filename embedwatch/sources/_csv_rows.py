"""Reading a table of delimited text in chunks of whole rows, and parsing a chunk: fast, or naming what is wrong."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.sources._csv_layout import Layout
from embedwatch.sources._messages import count_of, first_line, label_of, shown

__all__ = ["MAX_LINE", "Chunk", "chunks"]

LEAST_CHUNK, MOST_CHUNK = 64 << 10, 8 << 20
MAX_LINE = 32 << 20
"""A line, or a quoted cell of several lines, that is longer is a quote that nobody closed."""
NUMBER_BYTES = 12
LEAST_WIDTH = 3
"""Rows swallowed by a quote are recognised by so many cells; fewer may be a text with commas in it."""

Rows = tuple[Tensor, list[str]]
"""Values (N, D) and the label of each row, no labels where none are asked for."""


def chunks(path: Path, file: BinaryIO, layout: Layout, size: int) -> Iterator[Chunk]:
    """Yield about `size` rows at a time.

    Raises:
        InputError: if a quote is never closed.
    """
    label, line = label_of(path), layout.lines
    target = max(LEAST_CHUNK, min(size * NUMBER_BYTES * len(layout.columns), MOST_CHUNK))
    while data := file.read(target) + file.readline(MAX_LINE):
        inside = layout.dialect.quoted and data.count(b'"') % 2 == 1  # it ends within quotes, and the row goes on
        pieces, total = [data], 0
        while inside and total < MAX_LINE and (piece := file.readline(MAX_LINE)):
            pieces.append(piece)
            total += len(piece)
            inside ^= piece.count(b'"') % 2 == 1
        if len(data) + total >= target + MAX_LINE:
            raise InputError(
                f"{label} has a line or quoted cell of over {MAX_LINE:,} bytes behind line {line:,}; "
                "close the quote, or double it where it belongs to the text"
            )
        chunk = Chunk(label, line, b"".join(pieces), layout)
        yield chunk
        line += chunk.lines


class Chunk:
    """Whole rows of a table, as bytes.

    Args:
        label: name of the file, for messages.
        before: number of lines before it.
        data: the bytes.
        layout: of the table.

    Raises:
        InputError: if they are not UTF-8.
    """

    def __init__(self, label: str, before: int, data: bytes, layout: Layout) -> None:
        self.label, self.before, self.data, self.layout = label, before, data, layout
        self.lines = data.count(b"\n")
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            line = before + 1 + data.count(b"\n", 0, error.start)
            raise InputError(
                f"{label} line {line:,} is not UTF-8 (byte {data[error.start]:#04x}); "
                "convert the file, for example with `iconv -f latin1 -t utf-8`"
            ) from error

    def parse(self) -> Rows:
        """Return values and labels.

        Raises:
            InputError: if a row or cell does not fit; it names the line.
        """
        values, labels = self._fast() or self._slow()
        if self.layout.dialect.quoted and len(values) < self.lines and b'"' in self.data:
            self._check_quotes()
        return values, labels

    def _fast(self) -> Rows | None:
        """Parse with Arrow; None if anything does not fit, for `_slow` to say what."""
        layout, dialect = self.layout, self.layout.dialect
        types = {str(i): pa.float32() for i in layout.dimensions}
        if layout.label is not None:
            types[str(layout.label)] = pa.string()
        names = [str(i) for i in range(len(layout.columns))]
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(self.data),
                pa.csv.ReadOptions(use_threads=False, block_size=len(self.data) + 1, column_names=names),
                pa.csv.ParseOptions(
                    delimiter=dialect.delimiter,
                    quote_char='"' if dialect.quoted else False,
                    newlines_in_values=dialect.quoted,
                ),
                pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=dialect.missing,
                    decimal_point=dialect.decimal,
                ),
            )
        except pa.ArrowException:
            return None
        values = torch.empty((len(table), len(layout.dimensions)), dtype=torch.float32)
        for index, column in enumerate(layout.dimensions):
            values.numpy()[:, index] = table[str(column)].to_numpy()
        return values, [] if layout.label is None else table[str(layout.label)].to_pylist()

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the cells of each row, and where it stands."""
        reader = csv.reader(io.StringIO(self.text, newline=""), **self.layout.dialect.format)
        try:
            for row in filter(None, reader):
                yield f"{self.label} line {self.before + reader.line_num:,}", row
        except csv.Error as error:
            line = self.before + reader.line_num
            raise InputError(f"{self.label} line {line:,} cannot be read ({first_line(error)}); correct it") from error

    def _slow(self) -> Rows:
        """Parse cell by cell, and raise the error that names the first bad one."""
        layout = self.layout
        values: list[list[float]] = []
        labels: list[str] = []
        for where, row in self._rows():
            if len(row) != len(layout.columns):
                raise InputError(
                    f"{where} has {count_of(len(row), 'cell')}, the first lines {len(layout.columns):,}; correct it"
                )
            values.append([self._number(row[i], i, where) for i in layout.dimensions])
            labels.extend([] if layout.label is None else [row[layout.label]])
        return torch.tensor(values, dtype=torch.float32).view(len(values), len(layout.dimensions)), labels

    def _number(self, cell: str, column: int, where: str) -> float:
        dialect = self.layout.dialect
        if dialect.is_number(cell):
            return float(cell.replace(dialect.decimal, "."))
        if cell.strip() in dialect.missing:
            return math.nan
        named = f" ({shown(self.layout.columns[column])})" if self.layout.header else ""
        raise InputError(f"{where}, column {column + 1}{named} must be a number, got {shown(cell)}; correct that cell")

    def _check_quotes(self) -> None:
        """Refuse a quote that swallowed rows: a cell of several lines, one of which is a row by itself."""
        dialect, layout = self.layout.dialect, self.layout
        least = max(len(layout.columns) - 1, LEAST_WIDTH)
        for where, row in self._rows():
            for part in (part for cell in row if "\n" in cell for part in cell.split("\n")):
                cells = part.split(dialect.delimiter)
                if len(cells) >= least and sum(map(dialect.is_number, cells)) >= len(layout.dimensions):
                    raise InputError(
                        f"{where} ends a quoted cell with whole rows in it; double the quotes that are text"
                    )
