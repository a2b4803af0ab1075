"""Trend: the slope of an independent library, an honest interval, and crossings."""

from __future__ import annotations

import math
import random

import pytest
import scipy.stats

from embedwatch.core.errors import UsageError
from embedwatch.core.trend import Trend


def noisy(generator: random.Random, *, slope: float = 0.0, count: int = 30) -> list[tuple[float, float]]:
    return [(10.0 * step, 2 + slope * step + generator.gauss(0, 1)) for step in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_slope_and_ranks_are_those_of_scipy(seed: int) -> None:
    points = noisy(random.Random(seed), slope=0.3)
    times, values = zip(*points, strict=True)
    known = scipy.stats.theilslopes(values, times, alpha=0.9)
    found = Trend.through(points)
    assert found.slope == pytest.approx(known.slope)
    assert found.low <= known.low_slope + 1e-12
    assert found.high >= known.high_slope - 1e-12


def test_a_quarter_of_wild_points_changes_little() -> None:
    points = [(float(step), 1 + 0.5 * step) for step in range(20)]
    for place in (3, 8, 12, 17):
        points[place] = (points[place][0], 1e6)
    found = Trend.through(points)
    assert found.slope == pytest.approx(0.5)
    assert found.level == pytest.approx(10.5)
    assert found.scatter == pytest.approx(0.0)


@pytest.mark.parametrize("walking", [False, True], ids=["scattered", "walking"])
def test_the_interval_holds_the_slope_as_often_as_it_says(walking: bool) -> None:
    generator, held, tries = random.Random(0), 0, 400
    for _ in range(tries):
        points = noisy(generator)
        if walking:
            total = 0.0
            points = [(time, total := total + value - 2) for time, value in points]
        found = Trend.through(points)
        held += found.low <= 0 <= found.high
    assert held / tries > 0.9 - 3 * math.sqrt(0.9 * 0.1 / tries)


def test_crossings() -> None:
    rising = Trend.through([(step, 1 + 0.5 * step) for step in range(9)])
    assert rising.reaches(10.0) == pytest.approx(18.0)
    assert rising.reaches(10.0, slope=1.0) == pytest.approx(13.0)
    assert rising.reaches(3.0) == 8.0
    assert math.isinf(rising.reaches(10.0, slope=0.0))
    assert math.isinf(Trend.through([(step, 9 - step) for step in range(5)]).reaches(10.0))


@pytest.mark.parametrize(
    "points", [[(0, 1.0), (1, 2.0)], [(0, 1.0), (2, 2.0), (2, 3.0)], [(3, 1.0), (2, 2.0), (1, 3.0)]]
)
def test_too_few_or_unsorted_points_are_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(UsageError, match="rising order"):
        Trend.through(points)
