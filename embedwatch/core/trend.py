"""Trend: a robust straight line through a course of numbers, and when it reaches a limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import NormalDist, median

from embedwatch.core.errors import UsageError

__all__ = ["Trend"]

FEWEST_POINTS = 3
"""Two points lie on a line always."""
WALK = 6 / 5
"""Variance of the slope of a line through a random walk, over that of its mean step."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through points `(time, value)`: slope, its confidence interval, and the value at the last time.

    The slope is the median of the slopes of all pairs of points, and the level is the median of what the points say
    about the last time, so that a quarter of the points may be far off. The interval is the wider of two:

    - of Sen, from the variance of ranks `n (n - 1) (2 n + 5) / 18` (Kendall): right where points scatter around a line;
    - of a line through a random walk, `t √(6/5 m Σ (Δy - b Δt)² / (m - 1)) / T` over m steps in time T:
      right where deviations add up, as in a course of weights; there Sen's would find trends that are none.

    Cost: n² / 2 slopes.

    References:
        Sen 1968, "Estimates of the regression coefficient based on Kendall's tau". The factor 6/5: Durlauf & Phillips
        1988, "Trends versus random walks in time series analysis". Quantile of t: Abramowitz & Stegun 1964, 26.7.5.

    Args:
        slope: of the line, in values a unit of time.
        low: lower end of its confidence interval.
        high: upper end.
        level: the line at the last time.
        last: the last time.
        scatter: median distance of the points from the line.
    """

    slope: float
    low: float
    high: float
    level: float
    last: float
    scatter: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]], *, confidence: float = 0.9) -> Trend:
        """Return the line through three points or more, in order of time, no time twice.

        Example:
            >>> line = Trend.through([(0, 1.0), (10, 2.0), (20, 3.0), (30, 9.0), (40, 5.0)])
            >>> line.slope, line.level, line.reaches(11.0)
            (0.1, 5.0, 100.0)
        """
        if len(points) < FEWEST_POINTS or any(first >= second for (first, _), (second, _) in pairwise(points)):
            raise UsageError(
                f"`points` must be at least {FEWEST_POINTS} in rising order of time, got {len(points)}; sort them"
            )
        slopes = sorted((b - a) / (t - s) for (s, a), (t, b) in combinations(points, 2))
        slope, last = median(slopes), points[-1][0]
        level = median(value + slope * (last - time) for time, value in points)
        scatter = median(abs(value - level - slope * (time - last)) for time, value in points)
        quantile = NormalDist().inv_cdf((1 + confidence) / 2)
        low, high = _ranked(slopes, len(points), quantile)
        margin = _wandering(points, slope, quantile)
        return cls(slope, min(low, slope - margin), max(high, slope + margin), level, last, scatter)

    def reaches(self, limit: float, *, slope: float | None = None) -> float:
        """Return when the line rises to a limit, at another slope if one is given; infinity where it never does."""
        slope = self.slope if slope is None else slope
        if self.level >= limit:
            return self.last
        return self.last + (limit - self.level) / slope if slope > 0 else math.inf


def _ranked(slopes: Sequence[float], count: int, quantile: float) -> tuple[float, float]:
    """Return the two slopes that Sen's interval lies between."""
    half = quantile * math.sqrt(count * (count - 1) * (2 * count + 5) / 18) / 2
    middle = len(slopes) / 2
    return slopes[max(round(middle - half) - 1, 0)], slopes[min(round(middle + half), len(slopes) - 1)]


def _wandering(points: Sequence[tuple[float, float]], slope: float, quantile: float) -> float:
    """Return how far the slope may be off where deviations from the line add up."""
    steps = [(b - a) - slope * (t - s) for (s, a), (t, b) in pairwise(points)]
    freedom = len(steps) - 1
    spread = math.sqrt(math.fsum(step * step for step in steps) / freedom)
    error = spread * math.sqrt(WALK * len(steps)) / (points[-1][0] - points[0][0])
    return _student(quantile, freedom) * error


def _student(z: float, freedom: int) -> float:
    """Return the quantile of Student's t where that of the normal distribution is `z`, to two terms."""
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
