"""Exhibit: evidence for people, capped in size, made only when asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from embedwatch.core.errors import UsageError

__all__ = ["EXHIBIT_ROWS", "NO_ID", "Exhibit", "Shape"]

Shape = Literal["points", "curve", "matrix", "table"]
Cell = str | int | float | None

NO_ID = -1
"""What stands for the number of a row that has none."""
ROW_COLUMNS = ("row", "other_row", "last_row")
"""Columns that hold numbers of rows."""
EXHIBIT_ROWS = 5_000
"""An exhibit holds at most this many rows: what a browser draws without effort."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """Plain rows under named columns, with the shape in which a report draws them.

    Args:
        name: snake case; verdicts cite an exhibit by it.
        shape: points, curve, matrix or table.
        caption: one sentence that says what one sees.
        columns: column names. The column `row` holds row numbers of the source; whoever knows the source adds their
        names.
        rows: plain values.
        truncated: rows left out because of the cap.
    """

    name: str
    shape: Shape
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    truncated: int = 0

    @classmethod
    def build(
        cls, name: str, shape: Shape, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]
    ) -> Exhibit:
        """Make an exhibit, capped at `EXHIBIT_ROWS`; what is NaN or infinite is left empty."""
        every = [tuple(map(_finite, row)) for row in rows]
        if any(len(row) != len(columns) for row in every):
            raise UsageError(f"each row of the exhibit {name!r} must have {len(columns)} cells, one for each column")
        return cls(name, shape, caption, tuple(columns), tuple(every[:EXHIBIT_ROWS]), max(0, len(every) - EXHIBIT_ROWS))

    def with_column(self, place: int, column: str, cells: Sequence[Cell]) -> Exhibit:
        """Return a copy with one more column at this place."""
        rows = tuple((*row[:place], cell, *row[place:]) for row, cell in zip(self.rows, cells, strict=True))
        return replace(self, columns=(*self.columns[:place], column, *self.columns[place:]), rows=rows)

    def with_names(self, names: Callable[[Sequence[int]], Sequence[str]]) -> Exhibit:
        """Return a copy with the names that people have for its rows, beside their numbers, where there are any."""
        exhibit = self
        places = [place for place, column in enumerate(self.columns) if column in ROW_COLUMNS]
        for place in reversed(places):
            cells = (row[place] for row in self.rows)
            numbers = sorted({cell for cell in cells if isinstance(cell, int) and cell != NO_ID})
            found: dict[Any, str] = dict(zip(numbers, names(numbers), strict=True))
            if any(name != str(number) for number, name in found.items()):
                column = exhibit.columns[place].replace("row", "name")
                exhibit = exhibit.with_column(place + 1, column, [found.get(row[place]) for row in self.rows])
        return exhibit

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "shape": self.shape,
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "truncated": self.truncated,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Exhibit:
        """Read what `to_json` wrote."""
        rows = tuple(tuple(row) for row in data["rows"])
        return cls(data["name"], data["shape"], data["caption"], tuple(data["columns"]), rows, data["truncated"])


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell
