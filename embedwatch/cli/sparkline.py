"""A curve in one line of text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

__all__ = ["ASCII", "UNICODE", "Blocks", "cells", "sparkline"]

Blocks = tuple[str, str]
"""Characters from low to high, and the one for nothing."""
UNICODE: Blocks = ("▁▂▃▄▅▆▇█", "·")
ASCII: Blocks = ("_.-~=+*#", " ")
WIDE_GAP = 3
"""Two windows this many usual distances apart have others missing between them."""

Point = tuple[float, float | None]


def sparkline(points: Sequence[Point], width: int, *, blocks: Blocks = UNICODE) -> str:
    """Return a curve of at most `width` characters, from the smallest to the largest value that it shows.

    Args:
        points: (step or time, value), `None` where there is no value.
        width: largest number of characters; no more than points are drawn.
        blocks: what to draw with.

    Example:
        >>> sparkline([(step, value) for step, value in enumerate([0.0, 1.0, 2.0, None, 7.0])], 5)
        '▁▂▃·█'
        >>> sparkline([(0, 3.0), (1, 3.0)], 10), sparkline([(0, 0.0), (1, 0.0)], 10)
        ('▄▄', '▁▁')
    """
    levels, nothing = blocks
    drawn = cells(points, width)
    known = [value for value in drawn if value is not None]
    if not known:
        return nothing * len(drawn)
    low, high = min(known) / 2, max(known) / 2  # halves: the difference of two huge numbers overflows
    flat = levels[(len(levels) - 1) // 2 if high else 0]  # nothing but zeros lies low
    top = len(levels) - 1

    def block(value: float) -> str:
        return levels[round((value / 2 - low) / (high - low) * top)] if high > low else flat

    return "".join(nothing if value is None else block(value) for value in drawn)


def cells(points: Sequence[Point], width: int) -> list[float | None]:
    """Return the mean of the points in each of at most `width` equal stretches of steps or time, `None` for nothing.

    A stretch without a point repeats the one before, unless points are missing there: steps and times are not even.
    """
    count = min(width, len(points))
    if count < 1:
        return []
    places = _places(points, count)
    groups: list[list[float]] = [[] for _ in range(count)]
    for place, (_, value) in zip(places, points, strict=True):
        groups[place] += [] if value is None else [value]
    means = [sum(value / len(group) for value in group) if group else None for group in groups]
    for empty, before in _uneven(points, places):
        means[empty] = means[before]
    return means


def _places(points: Sequence[Point], count: int) -> list[int]:
    """Return the stretch of each point: by its step or time, or by its number where those do not rise."""
    positions = [position for position, _ in points]
    start, span = positions[0], positions[-1] - positions[0]
    if span <= 0 or any(late < early for early, late in pairwise(positions)):
        return [number * count // len(points) for number in range(len(points))]
    return [min(count - 1, int((position - start) / span * count)) for position in positions]


def _uneven(points: Sequence[Point], places: Sequence[int]) -> list[tuple[int, int]]:
    """Return `(stretch, stretch before)` for each that lies between two points no further apart than usual."""
    distances = [late - early for (early, _), (late, _) in pairwise(points)]
    widest = WIDE_GAP * median(distances) if distances else 0.0
    return [
        (empty, places[number])
        for number, distance in enumerate(distances)
        if distance < widest
        for empty in range(places[number] + 1, places[number + 1])
    ]
