"""Exhibits that have a better picture than their shape alone gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.report.contents import Chart
from embedwatch.report.shapes import bars, column, curve_chart, heat, line, matrix_chart, plain, points_chart
from embedwatch.report.wording import in_words, number, one_line

__all__ = ["charts_of", "histogram_charts"]

LEAST_NORM = 1e-30
"""Below, a norm counts as zero: it would stretch a logarithmic axis to nothing."""
MOST_BARS = 24
ONE_HEAD = "attention_head_"
NUMBERED = ("row", "region", "cell", "dimension", "direction")
"""Columns of numbers that say nothing without their noun."""
HALF = 0.5


def charts_of(exhibit: Exhibit) -> list[Chart]:
    """Return the pictures of an exhibit: one that was made for its name, else the one of its shape, if it has any."""
    if not exhibit.rows:
        return []
    made = KNOWN.get(exhibit.name, _BY_SHAPE[exhibit.shape])(exhibit)
    return [] if made is None else made if isinstance(made, list) else [made]


def histogram_charts(measurements: Sequence[Measurement]) -> Iterator[Chart]:
    """Yield a picture of each measurement that is a distribution."""
    for measurement in measurements:
        held = measurement.value
        if isinstance(held, Histogram) and held.n:
            edges = [*held.bounds]
            steps = [
                (edges[place - 1] if place else min(0.0, edges[0]), count)
                for place, count in enumerate(held.counts)
                if place < len(edges)
            ]
            steps += [(edges[-1], held.counts[-1])]
            title = f"distribution of {in_words(measurement.key)}"
            yield line(
                measurement.name,
                title,
                measurement.metric.help,
                [("values", steps)],
                x=in_words(measurement.name),
                y="values",
                step="end",
                area=True,
                minor=True,
            )


def _norms(exhibit: Exhibit) -> Chart:
    """Draw rows by norm as steps, and say how many lie in the middle half."""
    rows = sorted((float(row[0] or 0.0), float(row[1] or 0.0), int(row[2] or 0)) for row in exhibit.rows)
    zero = sum(count for low, _, count in rows if low < LEAST_NORM)
    rows = [row for row in rows if row[0] >= LEAST_NORM]
    points: list[tuple[Any, Any]] = []
    end = None
    for low, high, count in rows:
        if end is not None and low > end * (1 + 1e-9):  # nothing between two bins
            points.append((end, 0))
        points.append((low, count))
        end = high
    if end is not None:
        points.append((end, 0))
    told = f"{exhibit.caption} {zero:,} with norm zero." if zero else exhibit.caption
    total, half = sum(count for *_, count in rows), None
    for (low, high, _), reached in zip(rows, accumulate(count for *_, count in rows), strict=True):
        if reached >= total * HALF:
            half = (low * high) ** HALF
            break
    lines = [] if half is None else [{"value": plain(half), "text": f"median {number(half)}", "status": ""}]
    return line(
        exhibit.name,
        "norms",
        told,
        [("rows", points)],
        x="norm",
        y="rows",
        y_type="value",
        step="end",
        area=True,
        x_lines=lines,
    )


def _spectrum(exhibit: Exhibit) -> Chart:
    """Draw variance by direction on a logarithmic axis, and its sum so far on the other."""
    directions, variances = column(exhibit, "direction"), column(exhibit, "variance")
    known = [max(0.0, float(value or 0.0)) for value in variances]
    total = sum(known) or 1.0
    shares = [(direction, so_far / total) for direction, so_far in zip(directions, accumulate(known), strict=True)]
    floor = max(known, default=0.0) * 1e-9  # rounding lies below
    above = [(d, v if v > floor else None) for d, v in zip(directions, known, strict=True)]
    caption = f"{exhibit.caption} The sum so far is over that of all {len(known):,}."
    return line(
        exhibit.name,
        "spectrum",
        caption,
        [("variance", above), ("sum so far", shares)],
        x="direction",
        y="variance",
        x_type="value",
        y_type="log",
        second="share",
        second_series=[1],
    )


def _heads(exhibit: Exhibit) -> Chart:
    """Draw each number of all heads as cells: layers down, heads across."""
    layers, heads = column(exhibit, "layer"), column(exhibit, "head")
    down, across = sorted(set(layers)), sorted(set(heads))
    panels = []
    for name in exhibit.columns[2:]:
        cells = column(exhibit, name)
        if name in ("twin", "words") or all(plain(cell) is None for cell in cells):
            continue
        placed = [(across.index(h), down.index(a), v) for a, h, v in zip(layers, heads, cells, strict=True)]
        panels.append((in_words(name), [*map(str, across)], [*map(str, down)], placed))
    return heat(
        exhibit.name, "attention by layer and head", exhibit.caption, panels, x="head", y="layer", value="value"
    )


def _recall(exhibit: Exhibit) -> Chart:
    """Draw recall by size of the gallery: a line for each map and for what is looked for."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for row in exhibit.rows:
        cells = dict(zip(exhibit.columns, row, strict=True))
        for kept, told in (("best", "natively best item"), ("own", "own item")):
            found.setdefault(f"{_mapped(cells['map'])}: {told}", []).append((cells["gallery_rows"], cells[kept]))
    return line(
        exhibit.name,
        "recall by size of the gallery",
        exhibit.caption,
        [*found.items()],
        x="rows searched",
        y="recall at 10",
        x_type="log",
        y_type="value",
        y_range=[0, 1],
    )


def _mapped(name: Any) -> str:
    return "as they stand" if name == "none" else f"with {one_line(name)}"


def _stream(exhibit: Exhibit) -> Chart | None:
    """Draw sizes of the residual stream by depth; the axis is logarithmic, for single entries dwarf the rest."""
    names = [name for name in ("norm_median", "largest_entry", "over_median") if name in exhibit.columns]
    depths = column(exhibit, exhibit.columns[0])
    series = [(in_words(name), list(zip(depths, column(exhibit, name), strict=True))) for name in names]
    return line(exhibit.name, "residual stream", exhibit.caption, series, x="depth", y="size", y_type="log")


def _by_head(exhibit: Exhibit) -> Chart:
    """Draw a bar for each head: heads have no order that a line would follow."""
    heads, *names = exhibit.columns
    labels = [f"head {one_line(head)}" for head in column(exhibit, heads)]
    series = [(in_words(name), column(exhibit, name)) for name in names]
    return bars(exhibit.name, in_words(exhibit.name), exhibit.caption, labels, series)


def _topics(exhibit: Exhibit) -> Chart | None:
    return matrix_chart(exhibit, mirrored=True, diverging=True)


def _map(exhibit: Exhibit) -> Chart | None:
    return matrix_chart(exhibit, range=[0, None], root=True)


def _named_bars(value: str, title: str, others: Sequence[str] = ()) -> Callable[[Exhibit], list[Chart]]:
    """Return how a table becomes bars: what people call a row, and the value; the table itself stands beside."""

    def draw(exhibit: Exhibit) -> list[Chart]:
        if value not in exhibit.columns:
            return []
        places = [exhibit.columns.index(name) for name in (value, *others) if name in exhibit.columns]
        label = next(
            (
                exhibit.columns.index(name)
                for name in (
                    "name",
                    "token",
                    "group",
                    "region",
                    "cell",
                    "row",
                    "dimension",
                    "layer",
                    "module",
                    "direction",
                    "what",
                )
                if name in exhibit.columns
            ),
            0,
        )
        rows = exhibit.rows[:MOST_BARS]
        noun = exhibit.columns[label]
        labels = [f"{noun} {one_line(row[label])}" if noun in NUMBERED else one_line(row[label]) for row in rows]
        series = [(in_words(exhibit.columns[place]), [row[place] for row in rows]) for place in places]
        return [bars(exhibit.name, title, exhibit.caption, labels, series, flat=True)]

    return draw


def _shares(exhibit: Exhibit) -> list[Chart]:
    return _named_bars("share", in_words(exhibit.name), ("reference_share",))(exhibit)


KNOWN: Mapping[str, Callable[[Exhibit], Chart | list[Chart] | None]] = {
    "norm_distribution": _norms,
    "spectrum": _spectrum,
    "attention_heads_table": _heads,
    "attention_map": _map,
    "attention_entropy": _by_head,
    "attention_outputs": _by_head,
    "residual_depths": _stream,
    "pair_recall_curve": _recall,
    "word_topics": _topics,
    "groups": _named_bars("cohesion", "cohesion of groups"),
    "hubs": _named_bars("times_nearest", "hubs"),
    "foreign_rows": _named_bars("distance", "rows farthest from the reference"),
    "regions": _shares,
    "cells_gained": _shares,
    "cells_lost": _shares,
    "segment_shares": _shares,
    "input_sizes": _named_bars("rms", "sizes on the way to the first layer"),
    "norm_gains": _named_bars("gain_median", "gains of normalisations", ("gain_max",)),
    "pair_overlap_by_cluster": _named_bars("overlap", "neighbours kept by region"),
}


def _shape_map(exhibit: Exhibit) -> Chart | None:
    if exhibit.name.startswith(ONE_HEAD):
        layer, _, head = exhibit.name.removeprefix(ONE_HEAD).partition("_")
        drawn = matrix_chart(exhibit, range=[0, None], root=True)
        return None if drawn is None else replace(drawn, title=f"attention of layer {layer}, head {head}")
    return matrix_chart(exhibit)


def _none(exhibit: Exhibit) -> None:
    del exhibit


_BY_SHAPE: Mapping[str, Callable[[Exhibit], Chart | list[Chart] | None]] = {
    "curve": curve_chart,
    "points": points_chart,
    "matrix": _shape_map,
    "table": _none,
}
