"""Panels of a Grafana dashboard as plain dictionaries (classic JSON, as Grafana 10 to 13 read it)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

__all__ = [
    "COLUMNS",
    "DATASOURCE",
    "LIMIT",
    "Panel",
    "laid_out",
    "leading",
    "row",
    "stat",
    "table",
    "target",
    "time_series",
]

Panel = dict[str, Any]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLES = ("datasource", "job", "instance", "model", "place", "segment")
COLUMNS = 24
"""Width of Grafana's grid."""
SIZES = {"row": (COLUMNS, 1), "stat": (4, 4), "timeseries": (8, 9), "table": (12, 8)}
"""Width, at the least, and height of each type of panel."""
LIMIT = "limit"
"""`refId` of the query that draws limits, dashed."""
LIMIT_COLOURS = {"warn": "dark-orange", "fail": "dark-red"}
"""Of a limit whose line is named after its severity."""
EXPONENT, DIGITS = "sci", 2
"""Grafana's unit for numbers with an exponent, and decimals of these: it shows all of them unless told otherwise."""
SHARE, LEAST_SHARE = "percentunit", 0.01
"""Grafana's unit of shares, and where their axis ends at the least: of zeros it ends at 10,000 % otherwise."""
NARROWEST = 60
"""Pixels of a column; Grafana takes 150, and lets the last ones run out of the panel."""
LEGEND_WIDTH = 8


def target(expr: str, legend: str = "", *, ref: str = "A", instant: bool = False) -> dict[str, Any]:
    """Return one query of a panel; a line over time, or one value now for a table or a single number."""
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expr,
        "format": "table" if instant and not legend else "time_series",
        "instant": instant,
        "legendFormat": legend,
        "range": not instant,
        "refId": ref,
    }


def time_series(
    title: str,
    description: str,
    targets: Sequence[Mapping[str, Any]],
    *,
    unit: str = "none",
    interval: str = "",
) -> Panel:
    """Return lines over time.

    Args:
        title: what is drawn.
        description: what it is, and what good looks like.
        targets: queries; one of ref `LIMIT` is drawn dashed, and named first: it is never cut off.
        unit: Grafana's name of the unit.
        interval: smallest step between points; empty leaves it to the data source.
    """
    defaults = {
        "color": {"mode": "palette-classic"},
        "custom": {
            "drawStyle": "line",
            "fillOpacity": 0,
            "lineWidth": 1,
            "showPoints": "auto",
            "spanNulls": False,
            **({"axisSoftMax": LEAST_SHARE} if unit == SHARE else {}),
        },
        "unit": unit,
        **({"decimals": DIGITS} if unit == EXPONENT else {}),
    }
    limits_first = sorted(targets, key=lambda query: query["refId"] != LIMIT)
    return {
        **_panel("timeseries", title, description, limits_first),
        "fieldConfig": {"defaults": defaults, "overrides": _limits() if _has_limit(targets) else []},
        **({"interval": interval} if interval else {}),
        "options": {
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def stat(
    title: str,
    description: str,
    targets: Sequence[Mapping[str, Any]],
    *,
    unit: str = "none",
    steps: Sequence[tuple[str, float | None]] = (("text", None),),
) -> Panel:
    """Return one large number; `steps` are colours with the value from which they hold."""
    defaults = {
        "color": {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": [{"color": colour, "value": value} for colour, value in steps]},
        "unit": unit,
    }
    return {
        **_panel("stat", title, description, targets),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "auto",
        },
    }


def table(
    title: str,
    description: str,
    targets: Sequence[Mapping[str, Any]],
    *,
    columns: Sequence[str],
    value: str,
    words: Mapping[str, tuple[str, str]] | None = None,
    widths: Mapping[str, int] | None = None,
) -> Panel:
    """Return a table with one line a series.

    Args:
        title: what is listed.
        description: what it is, and what good looks like.
        targets: one instant query.
        columns: labels to show, in this order.
        value: heading of the value; empty hides it.
        words: values that are shown as a word in a colour.
        widths: pixels of columns; the others share the rest.
    """
    mappings = [
        {"type": "value", "options": {number: {"color": colour, "index": index, "text": text}}}
        for index, (number, (text, colour)) in enumerate((words or {}).items())
    ]
    override = {
        "matcher": {"id": "byName", "options": value},
        "properties": [
            {"id": "mappings", "value": mappings},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ],
    }
    sized = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "custom.width", "value": width}]}
        for name, width in (widths or {}).items()
    ]
    organize = {
        "excludeByName": {"Time": True, **({} if value else {"Value": True})},
        "indexByName": {name: index for index, name in enumerate((*columns, "Value"))},
        "renameByName": {"Value": value} if value else {},
    }
    return {
        **_panel("table", title, description, targets),
        "fieldConfig": {
            "defaults": {"custom": {"align": "left", "filterable": True, "minWidth": NARROWEST}, "unit": "none"},
            "overrides": ([override] if mappings else []) + sized,
        },
        "options": {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True},
        "transformations": [{"id": "organize", "options": organize}],
    }


def leading(panel: Panel, title: str, uid: str) -> Panel:
    """Return a panel that leads to another dashboard, with the same time and the same choices."""
    kept = "&".join(("${__url_time_range}", *(f"${{{name}:queryparam}}" for name in VARIABLES)))
    return {**panel, "links": [{"targetBlank": False, "title": title, "url": f"/d/{uid}?{kept}"}]}


def row(title: str) -> Panel:
    """Return the heading above some panels."""
    return {"collapsed": False, "panels": [], "title": title, "type": "row"}


def laid_out(panels: Iterable[Panel]) -> list[Panel]:
    """Return the panels with their numbers and places: neighbours of one type share lines evenly, and fill them.

    Example:
        >>> [panel["gridPos"]["w"] for panel in laid_out({"type": "timeseries"} for _ in range(5))]
        [8, 8, 8, 12, 12]
    """
    found: list[Panel] = []
    y = 0
    for kind, alike in groupby(panels, key=lambda panel: panel["type"]):
        wide, high = SIZES[kind]
        for line in _lines(list(alike), COLUMNS // wide):
            share = COLUMNS // len(line)
            for place, panel in enumerate(line):
                at = {"h": high, "w": share, "x": place * share, "y": y}
                found.append({"id": len(found) + 1, "gridPos": at, **panel})
            y += high
    return found


def _lines(panels: Sequence[Panel], most: int) -> list[Sequence[Panel]]:
    """Return the panels in lines of so many at most, none of which has more than one panel less than another."""
    count = -(-len(panels) // most)
    starts = [-(-len(panels) * line // count) for line in range(count + 1)]
    return [panels[start:end] for start, end in pairwise(starts)]


def _panel(kind: str, title: str, description: str, targets: Sequence[Mapping[str, Any]]) -> Panel:
    return {
        "datasource": DATASOURCE,
        "description": description,
        "targets": [dict(query) for query in targets],
        "title": title,
        "type": kind,
    }


def _has_limit(targets: Sequence[Mapping[str, Any]]) -> bool:
    return any(query["refId"] == LIMIT for query in targets)


def _limits() -> list[dict[str, Any]]:
    """Return the overrides that set limits apart from what is measured, and one severity from the other."""
    dashed = {"id": "custom.lineStyle", "value": {"dash": [10, 10], "fill": "dash"}}
    return [
        {"matcher": {"id": "byFrameRefID", "options": LIMIT}, "properties": [dashed]},
        *(
            {
                "matcher": {"id": "byRegexp", "options": f"/^{severity} at$/"},
                "properties": [{"id": "color", "value": {"fixedColor": colour, "mode": "fixed"}}],
            }
            for severity, colour in LIMIT_COLOURS.items()
        ),
    ]
