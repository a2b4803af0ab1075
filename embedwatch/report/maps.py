"""Maps become charts: points as numbers of 16 bits, so that 50,000 of them fit into a page."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from embedwatch.core.exhibit import NO_ID, Exhibit
from embedwatch.core.verdict import Verdict
from embedwatch.report.contents import Chart
from embedwatch.report.wording import in_words, number, one_line

if TYPE_CHECKING:
    from embedwatch.mapping import Frame, Layout

__all__ = ["map_chart", "witnesses_of"]

STEPS = 65_535
"""Places along each axis."""
LONGEST_NAME = 60
MOST_NAME_BYTES = 900_000
"""Of all names of one map: beyond, each is cut shorter."""
LEAST_NAME = 4
MOST_CLASSES = 23
"""Colours that are told apart at all; the rest is one colour."""
BANDS = 6
"""Of norms."""
VIEW = 0.002
"""Share of points at each end of an axis that the first view may leave out."""
MARGIN = 1.5
"""The first view is of all points, unless that is so many times as wide as that of nearly all."""
MOST_WITNESSES = 60
ROW_COLUMNS = ("row", "other_row", "last_row")


def map_chart(
    name: str,
    title: str,
    frames: Sequence[Frame],
    names: Callable[[int, Sequence[int]], Sequence[str]],
    *,
    groups: Sequence[tuple[str, Sequence[str], Sequence[Sequence[int]]]] = (),
    witnesses: Sequence[Mapping[int, str]] = (),
) -> Chart | None:
    """Return the map of one space, frame by frame.

    Args:
        name: of the chart.
        title: a few words.
        frames: the states.
        names: returns what people call the rows of a frame.
        groups: a way of colouring: its name, the names of the classes, and for each frame the class of each point.
        witnesses: for each frame, row numbers that a verdict names, with the reason.
    """
    if not frames:
        return None
    spoken: list[list[str] | None] = []
    shown = []
    for place, frame in enumerate(frames):
        ids = [int(each) for each in frame.ids.tolist()]
        own = _names(ids, names(place, ids))
        if own not in spoken:
            spoken.append(own)
        colours = [_classes(told, classes, members[place]) for told, classes, members in groups]
        colours += [_bands(frame.norms.tolist())]
        cells = frame.cells.tolist()
        colours += [_classes("cell", [f"cell {cell}" for cell in range(max(cells, default=0) + 1)], cells)]
        named = witnesses[place] if place < len(witnesses) else {}
        at = {row: point for point, row in enumerate(ids)}
        found = [[at[row], one_line(why)] for row, why in named.items() if row in at][:MOST_WITNESSES]
        shown.append(
            {
                "name": one_line(frame.name),
                "points": len(ids),
                "ids": _packed("i", [min(max(row, -(2**31)), 2**31 - 1) for row in ids]),
                "names": spoken.index(own),
                "layouts": [_layout(layout) for layout in frame.layouts],
                "colours": [colour for colour in colours if colour is not None],
                "witnesses": found,
            }
        )
    points = max(len(frame.ids) for frame in frames)
    caption = f"{points:,} rows, each a point. Directions have no meaning; what lies near is alike."
    if len(frames) > 1:
        caption += " Each state is turned to fit the one before it: what moves has moved."
    return Chart(name, "map", title, caption, {"names": spoken, "frames": shown})


def witnesses_of(verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit]) -> dict[int, str]:
    """Return the rows that exhibits name which a verdict cites that is not ok, with the reason."""
    cited = {
        name: verdict.title
        for verdict in verdicts
        if verdict.status in ("warn", "fail")
        for name in verdict.evidence.exhibits
    }
    found: dict[int, str] = {}
    for exhibit in exhibits:
        for place, column in enumerate(exhibit.columns):
            if exhibit.name in cited and column in ROW_COLUMNS:
                for row in exhibit.rows:
                    cell = row[place]
                    if isinstance(cell, int) and cell != NO_ID:
                        found.setdefault(cell, f"{cited[exhibit.name]}: {in_words(exhibit.name)}")
    return found


def _names(ids: Sequence[int], names: Sequence[str]) -> list[str] | None:
    """Return the names, short enough to fit; `None` where they are the numbers again."""
    if all(name == str(row) for row, name in zip(ids, names, strict=True)):
        return None
    shown = [one_line(name)[:LONGEST_NAME] for name in names]
    longest = LONGEST_NAME
    while longest > LEAST_NAME and sum(len(name.encode()) + 3 for name in shown) > MOST_NAME_BYTES:
        longest = longest * 3 // 4
        shown = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in shown]
    return shown


def _layout(layout: Layout) -> dict[str, Any]:
    x, y = (layout.places[:, axis].tolist() for axis in (0, 1))
    boxes = [(min(values), max(values)) for values in (x, y)]
    found: dict[str, Any] = {
        "method": layout.method,
        "told": layout.told,
        "box": [number for box in boxes for number in box],
        "view": [edge for values in (x, y) for edge in _view(values)],
        "x": _packed("H", _quantised(x, *boxes[0])),
        "y": _packed("H", _quantised(y, *boxes[1])),
    }
    if layout.points is not None and len(layout.points):
        found["rows"] = _packed("i", layout.points.tolist())
    return found


def _quantised(values: Sequence[float], low: float, high: float) -> list[int]:
    width = (high - low) or 1.0
    return [round((value - low) / width * STEPS) for value in values]


def _view(values: Sequence[float]) -> tuple[float, float]:
    """Return what the first view shows of an axis: all, or nearly all where the rest lies far out."""
    ordered = sorted(values)
    cut = int(len(ordered) * VIEW)
    low, high = ordered[cut], ordered[-1 - cut]
    spare = 0.05 * ((ordered[-1] - ordered[0]) or 1.0)
    if ordered[-1] - ordered[0] <= MARGIN * (high - low):
        return ordered[0] - spare, ordered[-1] + spare
    spare = 0.1 * (high - low)
    return low - spare, high + spare


def _classes(told: str, classes: Sequence[str], members: Sequence[int]) -> dict[str, Any] | None:
    """Return a way of colouring; small classes are joined where there are too many. -1 is no class."""
    sizes = [0] * len(classes)
    for member in members:
        if member >= 0:
            sizes[member] += 1
    order = sorted(range(len(classes)), key=lambda each: -sizes[each])[:MOST_CLASSES]
    order = sorted(each for each in order if sizes[each])
    if not order:
        return None
    place = {each: where for where, each in enumerate(order)}
    named = [one_line(classes[each]) for each in order]
    other = len(named)
    index = [place.get(member, other) if member >= 0 else other for member in members]
    if other in index:
        named.append("other")
    return {"name": told, "classes": named, "index": _packed("B", index)}


def _bands(norms: Sequence[float]) -> dict[str, Any] | None:
    """Return norms as bands of equally many points; `None` where they are all alike."""
    ordered = sorted(norms)
    if not ordered or ordered[-1] - ordered[0] <= 1e-3 * abs(ordered[-1]):
        return None
    edges = [ordered[0], *(ordered[len(ordered) * band // BANDS] for band in range(1, BANDS)), ordered[-1]]
    index = [max(0, sum(norm >= edge for edge in edges[1:-1])) for norm in norms]
    named = [f"{number(low, 3)} – {number(high, 3)}" for low, high in pairwise(edges)]
    return {"name": "norm", "classes": named, "index": _packed("B", index), "ordered": True}


def _packed(code: str, values: Sequence[int]) -> str:
    """Return whole numbers as base64 of their little-endian bytes."""
    held = array(code, values)
    if sys.byteorder == "big":
        held.byteswap()
    return b64encode(held.tobytes()).decode("ascii")
