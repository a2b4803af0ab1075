"""A curve in one line of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.cli.sparkline import ASCII, UNICODE, Blocks, cells, sparkline


def even(*values: float | None) -> list[tuple[float, float | None]]:
    return [(10.0 * number, value) for number, value in enumerate(values)]


@pytest.mark.parametrize(
    ("points", "width", "curve"),
    [
        ([], 5, ""),
        (even(1, 2), 0, ""),
        (even(0, 1, 2, 3, 4, 5, 6, 7), 8, "▁▂▃▄▅▆▇█"),
        (even(7, 0), 8, "█▁"),
        (even(1, 1, 3, 3), 2, "▁█"),
        (even(5, 5, 5), 8, "▄▄▄"),
        (even(0, 0), 8, "▁▁"),
        (even(None, None), 8, "··"),
        (even(None, 1, None, 2, None), 8, "·▁·█·"),
        (even(1, None, 2, 2), 2, "▁█"),
        (even(1e308, -1e308), 8, "█▁"),
        ([(0.0, 1.0), (0.0, 2.0)], 8, "▁█"),  # no time passed
        ([(9.0, 1.0), (5.0, 2.0), (10.0, 3.0)], 8, "▁▅█"),  # a clock that went back
        ([(0.0, 1.0), (11.0, 2.0), (19.0, 3.0), (31.0, 4.0)], 8, "▁▃▆█"),  # a clock that is not even
        ([(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (9.0, 3.0), (10.0, 3.0)], 5, "▁▃··█"),  # a pause
    ],
)
def test_known_curves(points: list[tuple[float, float | None]], width: int, curve: str) -> None:
    assert sparkline(points, width) == curve


def test_letters_where_blocks_cannot_be_shown() -> None:
    assert sparkline(even(0, 1, 2, None, 7), 5, blocks=ASCII) == "_.- #"
    assert "".join(ASCII).isascii()


def test_a_cell_is_the_mean_of_its_points() -> None:
    assert cells(even(1, 3, None, None, 10, 20), 3) == [2.0, None, 15.0]


@pytest.mark.parametrize("blocks", [UNICODE, ASCII])
@given(
    st.lists(
        st.tuples(
            st.floats(-1e18, 1e18),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
        )
    ),
    st.integers(0, 50),
)
def test_any_curve_fits_and_shows_its_ends(
    blocks: Blocks, points: list[tuple[float, float | None]], width: int
) -> None:
    drawn = sparkline(points, width, blocks=blocks)
    values = cells(points, width)
    assert len(drawn) == len(values) == min(width, len(points))
    known = [value for value in values if value is not None]
    assert [character == blocks[1] for character in drawn] == [value is None for value in values]
    if known and max(known) / 2 > min(known) / 2:
        assert drawn[values.index(min(known))] == blocks[0][0]
        assert drawn[values.index(max(known))] == blocks[0][-1]
