"""How a table of delimited text is laid out: is there a header, and which columns are dimensions, names and groups."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from embedwatch.core.errors import InputError, UsageError, did_you_mean
from embedwatch.sources._csv_dialect import MISSING, WHOLE, Dialect, find_dialect, read_sample
from embedwatch.sources._messages import check_shape, first_line, label_of, listed, shown

__all__ = ["Layout", "find_layout", "read_layout", "remarks"]

SAMPLE_ROWS = 100
ID_NAMES = ("id", "index", "idx", "row", "rowid", "row_number", "key", "unnamed: 0")
COUNTED_ROWS = 3
"""So many rows numbered 0, 1, 2 make a first column without a name a column of row numbers."""


@dataclass(frozen=True)
class Layout:
    """Positions of the columns that matter.

    Args:
        dialect: what separates cells.
        columns: names from the header; "1", "2", … where there is none.
        header: whether there is one.
        dimensions: columns of numbers.
        name: column that names the rows.
        label: column that holds their groups.
        notes: what was left out, and what was assumed.
        offset: position of the first row of data in the file.
        lines: number of lines before it.
    """

    dialect: Dialect
    columns: tuple[str, ...]
    header: bool
    dimensions: tuple[int, ...]
    name: int | None
    label: int | None
    notes: tuple[str, ...]
    offset: int = 0
    lines: int = 0


def read_layout(path: Path, *, labels: str | None = None, tabs: bool = False) -> Layout:
    """Read the first lines of a file, and return their layout.

    Raises:
        InputError: if they are no table with numbers in it.
        UsageError: if there is no column `labels`.
    """
    label = label_of(path)
    lines, offset = read_sample(path)
    try:
        dialect, _ = find_dialect(lines, tabs=tabs)
        skipped = remarks(lines, dialect)
        rows = [row for row in islice(csv.reader(lines[skipped:], **dialect.format), SAMPLE_ROWS + 1) if row]
        if not rows:
            raise InputError(f"{label} has no row in its first lines; is it a table of delimited text?")
        layout = find_layout(label, rows, dialect, labels=labels)
        if layout.header:
            header = csv.reader(lines[skipped:], **dialect.format)
            next(header)
            skipped += header.line_num
    except csv.Error as error:
        raise InputError(f"{label} is no table of delimited text ({first_line(error)}); is it another kind?") from error
    before = "".join(lines[:skipped]).encode("utf-8", "surrogateescape")
    return replace(layout, offset=offset + len(before), lines=skipped)


def remarks(lines: Sequence[str], dialect: Dialect) -> int:
    """Return how many first lines are blank, or remarks that begin with `#` as numpy.savetxt writes them.

    A remark has another number of cells than the table; a row whose name is "#" has not.
    """
    widths = Counter(map(len, dialect.rows(lines)))
    width = widths.most_common(1)[0][0] if widths else 0
    for index, line in enumerate(lines):
        if line.strip() and not (line.startswith("#") and [len(row) for row in dialect.rows([line])] != [width]):
            return index
    return len(lines)


def find_layout(label: str, rows: list[list[str]], dialect: Dialect, *, labels: str | None = None) -> Layout:
    """Return the layout of a table from its first rows.

    Raises:
        InputError: if no column is a dimension.
        UsageError: if there is no column `labels`.
    """
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]  # a row that is too short is named when it is read
    first, rest = rows[0], rows[1:] or rows
    kinds = [_kind([row[i] for row in rest], dialect) for i in range(width)]
    numeric = [i for i in range(width) if kinds[i] in ("number", "whole")]
    heads = [first[i] for i in numeric if dialect.is_number(first[i])]
    counted = _counts_up(heads) and "number" in kinds
    header = counted or not any(dialect.is_number(first[i]) or first[i] in MISSING[1:] for i in numeric)
    if len(rows) == 1 and header:  # nothing but a header: all its columns may be dimensions
        kinds, numeric = ["whole"] * width, list(range(width))
    columns = tuple(cell.strip() for cell in first) if header else tuple(str(i + 1) for i in range(width))
    groups = _find(label, columns, labels)
    ids = _named_ids(columns, kinds) if header else _counted_ids(rows, kinds)
    texts = [i for i in range(width) if kinds[i] == "text" and i != groups]
    dimensions = tuple(i for i in numeric if i not in ids and i != groups)
    if not dimensions:
        lists = [columns[i] for i in texts if all(row[i].strip().startswith("[") for row in rest)]
        why = f"column {shown(lists[0])} holds lists as text" if lists else f"its columns are {listed(columns)}"
        raise InputError(
            f"{label} has no column of numbers, {why}; write one for each dimension, or save it as Parquet"
        )
    check_shape(label, (0, len(dimensions)))
    notes = _notes(columns, kinds, ids, texts, dimensions)
    if counted:
        notes.insert(0, f"the first line ({heads[0]} to {heads[-1]}) is taken as a header")
    return Layout(dialect, columns, header, dimensions, next(iter([*texts, *ids]), None), groups, tuple(notes))


def _kind(cells: list[str], dialect: Dialect) -> str:
    """Return `number`, `whole` (all are whole numbers), `text` or `empty`; a few bad cells do not make numbers text."""
    cells = [cell for cell in cells if cell.strip() not in MISSING]
    if not cells:
        return "empty"
    if all(WHOLE.fullmatch(cell) for cell in cells):
        return "whole"
    return "number" if 2 * sum(map(dialect.is_number, cells)) > len(cells) else "text"


def _counts_up(cells: list[str]) -> bool:
    """Return whether cells are 0, 1, 2, … or 1, 2, 3, …, as pandas heads columns and numbers rows without names."""
    return len(cells) > 1 and any(cells == [str(i + start) for i in range(len(cells))] for start in (0, 1))


def _find(label: str, columns: tuple[str, ...], wanted: str | None) -> int | None:
    if wanted is None:
        return None
    if wanted not in columns:
        hint = did_you_mean(wanted, columns) or f"it has {listed(columns)}"
        raise UsageError(f"{label} has no column {shown(wanted)} for `labels`; {hint}")
    return columns.index(wanted)


def _named_ids(columns: Sequence[str], kinds: list[str]) -> list[int]:
    """Return the columns of whole numbers that are called as row numbers are."""
    lower = [column.lower() for column in columns]
    called = [column in ID_NAMES or column.endswith("_id") or (column, i) == ("", 0) for i, column in enumerate(lower)]
    return [i for i, kind in enumerate(kinds) if kind == "whole" and called[i]]


def _counted_ids(rows: list[list[str]], kinds: list[str]) -> list[int]:
    """Return the first column where it counts the rows and others hold fractions."""
    counted = len(rows) >= COUNTED_ROWS and _counts_up([row[0] for row in rows])
    return [0] if counted and "number" in kinds[1:] else []


def _notes(
    columns: Sequence[str], kinds: list[str], ids: list[int], texts: list[int], dimensions: Sequence[int]
) -> list[str]:
    def say(chosen: Sequence[int], one: str, many: str) -> list[str]:
        names = listed([f'"{columns[i]}"' for i in chosen])
        return [f"column {names} {one}" if len(chosen) == 1 else f"columns {names} {many}"] if chosen else []

    whole = [i for i in dimensions if kinds[i] == "whole"]
    empty = [i for i, kind in enumerate(kinds) if kind == "empty"]
    return [
        *say(ids, "numbers the rows and is no dimension", "number the rows and are no dimensions"),
        *say(texts, "is text and no dimension", "are text and no dimensions"),
        *say(empty, "is empty in the first rows and left out", "are empty in the first rows and left out"),
        *say(
            whole if len(whole) < len(dimensions) else [],
            "holds whole numbers and is read as a dimension",
            "hold whole numbers and are read as dimensions",
        ),
    ]
