"""How delimited text is written: what separates cells, whether quotes mean anything, the decimal point."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.sources._files import SNIFF_BYTES, reading
from embedwatch.sources._messages import label_of
from embedwatch.sources._numbers import is_number

__all__ = ["MISSING", "WHOLE", "Dialect", "find_dialect", "read_sample"]

LEAST_SAMPLE_LINES = 3
MAX_SAMPLE = 64 << 20
MISSING = ("", "nan", "NaN", "NAN", "NA", "N/A", "n/a", "null", "NULL", "None")
"""Cells of a dimension that are read as NaN."""
WHOLE = re.compile(r"\s*-?\d+\s*")
_COMMA_NUMBER = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_LIST = re.compile(r"\s*\[[^\]]*\d[^\]]*\]\s*")


@dataclass(frozen=True)
class Dialect:
    """What separates cells, whether quotes mean anything, and the decimal point."""

    delimiter: str = ","
    quoted: bool = True
    decimal: str = "."

    @property
    def format(self) -> dict[str, Any]:
        """Arguments of `csv.reader`."""
        return {"delimiter": self.delimiter, "quoting": csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE}

    @property
    def missing(self) -> tuple[str, ...]:
        """Cells that are read as NaN. Between blanks an empty cell is a second blank, and no cell."""
        return MISSING[1:] if self.delimiter == " " else MISSING

    def rows(self, lines: Iterable[str]) -> list[list[str]]:
        """Return the cells of each row that is not blank."""
        return [row for row in csv.reader(lines, **self.format) if row]

    def is_number(self, cell: str) -> bool:
        """Return whether a cell holds a number."""
        if self.decimal == ",":
            return bool(_COMMA_NUMBER.fullmatch(cell) or WHOLE.fullmatch(cell))
        return is_number(cell)


DIALECTS = tuple(
    Dialect(delimiter, quoted, decimal)
    for delimiter, decimals in ((",", "."), ("\t", ".,"), (";", ".,"), ("|", "."), (" ", "."))
    for decimal in decimals
    for quoted in (True, False)
)


def find_dialect(lines: Sequence[str], *, tabs: bool = False) -> tuple[Dialect, float]:
    """Return the dialect that explains the lines best, and how well, 0-1.

    The score is the share of rows that have the most frequent number of cells, times the share of numbers among their
    cells; of equal ones the more regular wins, then the wider, then the one with more rows. Cells that are whole lists
    decide at once.

    Args:
        lines: the first lines of a file.
        tabs: whether tabs must separate the cells.
    """
    best, best_score = Dialect("\t") if tabs else Dialect(), (0.0, 0.0, 1, 0)
    for dialect in DIALECTS:
        if dialect.delimiter not in "".join(lines) or (tabs and dialect.delimiter != "\t"):
            continue
        try:
            rows = dialect.rows(lines)
        except csv.Error:
            continue
        if dialect.quoted and any(_LIST.fullmatch(cell) for row in rows for cell in row):
            return dialect, 1.0  # vectors written as lists: splitting them at their commas would explain more numbers
        width, votes = Counter(map(len, rows)).most_common(1)[0]
        cells = [cell for row in rows if len(row) == width for cell in row]
        numbers = sum(dialect.is_number(cell) or cell in MISSING[1:] for cell in cells)
        regular = votes / len(rows)
        score = (regular * numbers / len(cells), regular, width, len(rows))
        if width > 1 and score > best_score:
            best, best_score = dialect, score
    return best, best_score[0]


def read_sample(path: Path) -> tuple[list[str], int]:
    """Return the first lines, and where they begin: behind the byte order mark. Bad bytes are kept as surrogates.

    Raises:
        InputError: if they are not text in UTF-8 or a superset of ASCII.
    """
    with reading(path), path.open("rb") as file:
        data = file.read(SNIFF_BYTES)
        while data.count(b"\n") < LEAST_SAMPLE_LINES and len(data) < MAX_SAMPLE and (more := file.read(len(data))):
            data += more
        whole = not file.read(1)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(
            f"{label_of(path)} is UTF-16, tables must be UTF-8; convert it with `iconv -f utf-16 -t utf-8`"
        )
    if b"\0" in data:
        raise InputError(f"{label_of(path)} holds zero bytes at its beginning, so it is no text; is it another kind?")
    offset = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    lines = list(io.StringIO(data[offset:].decode("utf-8", "surrogateescape"), newline=""))
    return (lines if whole or len(lines) < 2 else lines[:-1]), offset
