"""An exhibit becomes a chart by its shape, whoever made it: a curve lines, a matrix cells, points dots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from embedwatch.core.exhibit import Exhibit
from embedwatch.report.contents import Chart
from embedwatch.report.wording import in_words, one_line

__all__ = [
    "MOST_PANELS",
    "bars",
    "column",
    "curve_chart",
    "heat",
    "is_numeric",
    "line",
    "matrix_chart",
    "plain",
    "points_chart",
    "spans_orders",
]

DIGITS = 5
ORDERS = 300.0
"""Quotient of the largest and the smallest value from which an axis is logarithmic."""
MOST_SERIES = 24
MOST_PANELS = 24
MANY_POINTS = 2_000
"""Points of a line beyond which it is thinned: a screen has no more columns."""

Point = tuple[Any, Any]


def plain(value: Any) -> Any:
    """Return a number with as many digits as a picture shows, `None` for what is no finite number.

    Example:
        >>> plain(1.23456789), plain(float("nan")), plain(3), plain("x")
        (1.2346, None, 3, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def column(exhibit: Exhibit, name: str) -> list[Any]:
    """Return the cells of a column."""
    place = exhibit.columns.index(name)
    return [row[place] for row in exhibit.rows]


def is_numeric(cells: Iterable[Any]) -> bool:
    """Return whether all cells are numbers or missing, and one is a number.

    Example:
        >>> is_numeric([1, None]), is_numeric([None]), is_numeric(["1"])
        (True, False, False)
    """
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)


def spans_orders(values: Iterable[Any]) -> bool:
    """Return whether values are above 0 and reach over orders of magnitude, which only a logarithm shows."""
    known = [value for value in map(plain, values) if value is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) > ORDERS


def line(
    name: str,
    title: str,
    caption: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    x: str,
    y: str = "",
    x_type: str | None = None,
    y_type: str | None = None,
    minor: bool = False,
    **more: Any,
) -> Chart:
    """Return lines over a common axis.

    Args:
        name: of the chart.
        title: a few words.
        caption: a sentence.
        series: name and points (x, y) of each line.
        x: name of the axis.
        y: name of the axis.
        x_type: `value`, `log`, `time` or `category`; `value`, or `log` where the values reach over orders.
        y_type: the same.
        minor: folded away.
        more: further fields that `charts.js` knows: `spans`, `limits`, `step`, `area`, `smooth`.
    """
    lines = [
        (label, _thinned([(plain(a) if x_type != "category" else a, plain(b)) for a, b in points]))
        for label, points in series[:MOST_SERIES]
    ]
    if x_type is None:
        x_type = "log" if spans_orders(a for _, points in lines for a, _ in points) else "value"
    if y_type is None:
        y_type = "log" if spans_orders(b for _, points in lines for _, b in points) else "value"
    data = {
        "x": {"name": x, "type": x_type},
        "y": {"name": y, "type": y_type},
        "series": [{"name": label, "data": points} for label, points in lines],
        **more,
    }
    return Chart(name, "line", title, caption, data, minor)


def _thinned(points: list[Point]) -> list[Point]:
    """Return every k-th point where there are more than a screen has columns; the last one stays."""
    every = -(-len(points) // MANY_POINTS)
    return points if every <= 1 else [*points[:-1:every], points[-1]]


def bars(
    name: str, title: str, caption: str, labels: Sequence[str], series: Sequence[tuple[str, Sequence[Any]]], **more: Any
) -> Chart:
    """Return bars: one group for each label; `flat=True` lays them down, which long labels need."""
    data = {
        "labels": [one_line(label) for label in labels],
        "series": [{"name": told, "data": [plain(value) for value in values]} for told, values in series],
        **more,
    }
    return Chart(name, "bars", title, caption, data)


def heat(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[tuple[str, Sequence[str], Sequence[str], Sequence[tuple[int, int, Any]]]],
    *,
    x: str,
    y: str,
    value: str,
    **more: Any,
) -> Chart:
    """Return cells in colours, one panel at a time.

    Args:
        name: of the chart.
        title: a few words.
        caption: a sentence.
        panels: name, labels across, labels down, and cells (column, row, value) of each.
        x: name of the axis.
        y: name of the axis.
        value: what a colour stands for.
        more: further fields that `charts.js` knows: `range`, `diverging`.
    """
    shown = []
    for told, across, down, cells in panels[:MOST_PANELS]:
        kept = [[i, j, plain(v)] for i, j, v in cells]
        shown.append({"name": told, "x": [*map(one_line, across)], "y": [*map(one_line, down)], "cells": kept})
    data = {"x": {"name": x}, "y": {"name": y}, "value": value, "panels": shown, **more}
    return Chart(name, "heat", title, caption, data)


def curve_chart(exhibit: Exhibit) -> Chart | None:
    """Return lines: the first column of numbers, or of text where it is the first of all, lies across."""
    columns = {name: column(exhibit, name) for name in exhibit.columns}
    numbers = [name for name, cells in columns.items() if is_numeric(cells)]
    title = in_words(exhibit.name)
    first = exhibit.columns[0] if exhibit.columns else ""
    if not numbers:
        return None
    if first not in numbers and len(set(columns[first])) == len(columns[first]):  # a name for each point
        values = [(in_words(name), columns[name]) for name in numbers]
        return bars(exhibit.name, title, exhibit.caption, [*map(one_line, columns[first])], values)
    across, rest = numbers[0], numbers[1:]
    keys = [name for name in exhibit.columns if name not in numbers and len(set(columns[name])) < len(exhibit.rows)]
    if not rest:
        return None
    found: dict[str, list[Point]] = {}
    for place, _ in enumerate(exhibit.rows):
        key = " ".join(one_line(columns[name][place]) for name in keys)
        for name in rest:
            label = " ".join(part for part in (key, in_words(name) if len(rest) > 1 or not key else "") if part)
            found.setdefault(label, []).append((columns[across][place], columns[name][place]))
    series = [(label, sorted(points, key=lambda point: point[0] or 0)) for label, points in found.items()]
    return line(exhibit.name, title, exhibit.caption, series, x=in_words(across), y=in_words(rest[0]))


def points_chart(exhibit: Exhibit) -> Chart | None:
    """Return dots: the first two columns of numbers are the plane, the first column of text their colour."""
    numbers = [name for name in exhibit.columns if is_numeric(column(exhibit, name)) and name != "row"]
    if len(numbers) < 2:
        return None
    texts = [name for name in exhibit.columns if not is_numeric(column(exhibit, name))]
    across, up = (column(exhibit, name) for name in numbers[:2])
    colours = column(exhibit, texts[0]) if texts else [""] * len(across)
    found: dict[str, list[Point]] = {}
    for key, a, b in zip(colours, across, up, strict=True):
        found.setdefault(one_line(key) if key else "", []).append((a, b))
    x, y = map(in_words, numbers[:2])
    return line(exhibit.name, in_words(exhibit.name), exhibit.caption, [*found.items()], x=x, y=y, dots=True)


def matrix_chart(exhibit: Exhibit, *, mirrored: bool = False, **more: Any) -> Chart | None:
    """Return cells: the last column is the value, the two before it the place, the others name the panel.

    Two columns of numbers that stand before two of text with the same sense (`query`, `query_token`) are the place,
    and the text is what stands at the axes.

    Args:
        exhibit: of shape matrix.
        mirrored: each pair is there once, and is drawn twice.
        more: further fields of the chart.
    """
    if len(exhibit.columns) < 3 or not exhibit.rows:
        return None
    *keys, down, across, value = exhibit.columns
    names: tuple[list[Any], list[Any]] | None = None
    if len(keys) >= 2 and (down, across) == (f"{keys[-2]}_token", f"{keys[-1]}_token"):
        names = column(exhibit, down), column(exhibit, across)
        *keys, down, across = keys
    cells = list(zip(column(exhibit, down), column(exhibit, across), column(exhibit, value), strict=True))
    panel_of = (
        [" · ".join(one_line(column(exhibit, key)[place]) for key in keys) for place in range(len(cells))]
        if keys
        else [""] * len(cells)
    )
    panels = []
    for told in dict.fromkeys(panel_of):
        places = [place for place, panel in enumerate(panel_of) if panel == told]
        of_panel = [cells[place] for place in places]
        if mirrored:
            of_panel += [(b, a, v) for a, b, v in of_panel if a != b]
        labels = _labels(of_panel)
        spelt = [[*map(str, side)] for side in labels]
        if names is not None:
            known = [{cells[place][side]: names[side][place] for place in places} for side in (0, 1)]
            spelt = [[f"{one_line(known[side].get(each))} {each}" for each in labels[side]] for side in (0, 1)]
        at = [{label: number for number, label in enumerate(side)} for side in labels]
        shown = [(at[1][b], at[0][a], v) for a, b, v in of_panel]
        panels.append((told, spelt[1], spelt[0], shown))
    titles = {"x": in_words(across), "y": in_words(down), "value": in_words(value)}
    return heat(exhibit.name, in_words(exhibit.name), exhibit.caption, panels, **titles, **more)


def _labels(cells: Sequence[tuple[Any, Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Return what stands at the axes: numbers in their order, names as they come."""
    found = []
    for side in (0, 1):
        each = list(dict.fromkeys(cell[side] for cell in cells))
        found.append(sorted(each) if is_numeric(each) else each)
    return found[0], found[1]
