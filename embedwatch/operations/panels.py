"""Panels of a Grafana dashboard as plain dictionaries (classic JSON, as Grafana 10 to 13 read it)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
SIZES = {"row": (COLUMNS, 1), "stat": (4, 4), "timeseries": (8, 8), "table": (12, 8)}
"""Width and height of each type of panel."""
LIMIT = "limit"
"""`refId` of the query that draws limits, dashed."""
LIMIT_COLOUR = "dark-red"
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
        targets: queries; one of ref `LIMIT` is drawn dashed.
        unit: Grafana's name of the unit.
        interval: smallest step between points; empty leaves it to the data source.
    """
    defaults = {
        "color": {"mode": "palette-classic"},
        "custom": {"drawStyle": "line", "fillOpacity": 0, "lineWidth": 1, "showPoints": "auto", "spanNulls": False},
        "unit": unit,
    }
    return {
        **_panel("timeseries", title, description, targets),
        "fieldConfig": {"defaults": defaults, "overrides": [_dashed()] if _has_limit(targets) else []},
        **({"interval": interval} if interval else {}),
        "options": {
            "legend": {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "bottom", "showLegend": True},
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
) -> Panel:
    """Return a table with one line a series.

    Args:
        title: what is listed.
        description: what it is, and what good looks like.
        targets: one instant query.
        columns: labels to show, in this order.
        value: heading of the value; empty hides it.
        words: values that are shown as a word in a colour.
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
    organize = {
        "excludeByName": {"Time": True, **({} if value else {"Value": True})},
        "indexByName": {name: index for index, name in enumerate((*columns, "Value"))},
        "renameByName": {"Value": value} if value else {},
    }
    return {
        **_panel("table", title, description, targets),
        "fieldConfig": {
            "defaults": {"custom": {"align": "auto", "filterable": True}, "unit": "none"},
            "overrides": [override] if mappings else [],
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
    """Return the panels with their numbers and places: from left to right, each row of the grid as high as needed."""
    found: list[Panel] = []
    x, y, height = 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        wide, high = SIZES[panel["type"]]
        if x + wide > COLUMNS or high != height:
            x, y, height = 0, y + height, high
        found.append({"id": number, "gridPos": {"h": high, "w": wide, "x": x, "y": y}, **panel})
        x += wide
    return found


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


def _dashed() -> dict[str, Any]:
    """Return the override that sets limits apart from what is measured."""
    return {
        "matcher": {"id": "byFrameRefID", "options": LIMIT},
        "properties": [
            {"id": "custom.lineStyle", "value": {"dash": [10, 10], "fill": "dash"}},
            {"id": "color", "value": {"fixedColor": LIMIT_COLOUR, "mode": "fixed"}},
        ],
    }
