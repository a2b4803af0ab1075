"""Exhibit."""

from __future__ import annotations

import json

import pytest

from embedwatch.core import Exhibit, UsageError
from embedwatch.core.exhibit import EXHIBIT_ROWS


@pytest.mark.parametrize(("rows", "left_out"), [(0, 0), (1, 0), (EXHIBIT_ROWS, 0), (EXHIBIT_ROWS + 3, 3)])
def test_is_capped_and_says_what_it_leaves_out(rows: int, left_out: int) -> None:
    exhibit = Exhibit.build("largest_norms", "table", "The longest rows.", ("row",), ([i] for i in range(rows)))
    assert len(exhibit.rows) == min(rows, EXHIBIT_ROWS)
    assert exhibit.truncated == left_out
    assert exhibit.rows == tuple((i,) for i in range(min(rows, EXHIBIT_ROWS)))


def test_each_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(UsageError, match="2 cells"):
        Exhibit.build("x", "table", "X.", ("row", "norm"), [(1, 2.0), (1,)])


def test_a_damaged_row_beyond_the_cap_is_still_refused() -> None:
    rows = [(i,) for i in range(EXHIBIT_ROWS)] + [(1, 2)]
    with pytest.raises(UsageError):
        Exhibit.build("x", "table", "X.", ("row",), rows)


def test_survives_json() -> None:
    exhibit = Exhibit.build("x", "points", "Ä.", ["row", "word", "norm"], [(0, "人", None), (1, "b", 0.5)])
    again = Exhibit.from_json(json.loads(json.dumps(exhibit.to_json())))
    assert again == exhibit
    assert hash(again) == hash(exhibit)
