"""Whom to blame, in words: the first rows of the tables that a verdict cites, for consoles and logs alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from embedwatch.core.exhibit import NO_ID, ROW_COLUMNS, Exhibit
from embedwatch.core.snapshot import Snapshot

__all__ = ["blamed", "format_number", "known_rows", "one_line"]

NAMED = 5
"""So many of the rows to blame are named under a verdict; the others are in the exhibit."""
SHOWN = 60
"""A name is cut after so many characters."""
LARGEST_WHOLE = 1e15
OF_TABLES = ("table", "tokens")
"""Roles of places whose row numbers are those of a table."""
LIVE = "places_expected"
"""What the coverage of a live model holds."""


def known_rows(snapshot: Snapshot, exhibits: Iterable[Exhibit]) -> dict[str, Exhibit]:
    """Return by name the exhibits whose rows people can look up.

    Vectors that a module of a live model puts out are numbered for ourselves: such a number leads nowhere, a name does.

    Example:
        >>> from embedwatch.core.snapshot import Provenance, Space
        >>> rows = Exhibit.build("norms", "table", "Largest.", ("row", "norm"), [(7, 90.0)])
        >>> live = {"coverage": {"places_expected": 1}, "role": "layer"}
        >>> list(known_rows(Snapshot(Space("m", "layers.0"), (), Provenance(0.0, 9, **live)), [rows]))
        []
        >>> list(known_rows(Snapshot(Space("m", "token_table"), (), Provenance(0.0, 9, role="table")), [rows]))
        ['norms']
    """
    provenance = snapshot.provenance
    known = provenance.role in OF_TABLES or LIVE not in provenance.coverage
    return {
        exhibit.name: exhibit
        for exhibit in exhibits
        if known or "name" in exhibit.columns or not set(exhibit.columns[:1]).intersection(ROW_COLUMNS)
    }


def blamed(cited: Iterable[str], exhibits: Mapping[str, Exhibit]) -> list[str]:
    """Return one line for each cited table: its first rows by number, name and what is told of them.

    Example:
        >>> rows = Exhibit.build("norms", "table", "Largest.", ("row", "norm"), [(7, 90.0), (3, 8.5)])
        >>> blamed(["norms"], {"norms": rows})
        ['rows 7 (norm 90), 3 (8.5)']
    """
    found = []
    for name in cited:
        exhibit = exhibits.get(name)
        if exhibit is None or exhibit.shape != "table" or not exhibit.rows:
            continue
        rows = [row for row in exhibit.rows if row[0] != NO_ID]
        shown = [_entry(exhibit.columns, row, label=place == 0) for place, row in enumerate(rows[:NAMED])]
        more = ", …" if len(rows) > NAMED else ""
        if not shown:
            continue
        found.append(f"{exhibit.columns[0].replace('_', ' ')}s {', '.join(shown)}{more}")
    return found


def _entry(columns: Sequence[str], row: Sequence[object], *, label: bool) -> str:
    """Return the first cell of a row with its name and what the next column tells, with that column's title or not."""
    cells = dict(zip(columns, row, strict=True))
    name = cells.get("name")
    text = str(row[0]) + (f" “{_shortened(str(name))}”" if name is not None else "")
    told = next((column for column in columns[1:] if not column.endswith("name") and cells[column] is not None), None)
    if told is None:
        return text
    cell = cells[told]
    value = format_number(cell) if isinstance(cell, (int, float)) else str(cell)
    return f"{text} ({told.replace('_', ' ')} {value})" if label else f"{text} ({value})"


def _shortened(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def format_number(value: float, digits: int = 3) -> str:
    """Return a number as a person reads it: whole numbers with thousands, others with a few significant digits.

    Example:
        >>> format_number(30522), format_number(0.70512), format_number(1.0), format_number(2.5e-7)
        ('30,522', '0.705', '1', '2.5e-07')
    """
    if abs(value) < LARGEST_WHOLE and value == int(value):
        return f"{int(value):,}"
    return f"{value:.{digits}g}"


def one_line(text: str) -> str:
    """Return a text without line breaks and control characters, which a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)
