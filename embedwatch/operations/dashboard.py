"""A Grafana dashboard around its panels: variables that chain, annotations, links, and what makes it stable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from embedwatch.exposition import PREFIX
from embedwatch.operations.panels import DATASOURCE, Panel, laid_out
from embedwatch.operations.promql import select

__all__ = ["dashboard"]

SCHEMA = 41
"""Version of Grafana 11.6; later ones migrate it when they load it."""
ON_TIME_CHANGE = 2
"""Grafana's number for: ask again when the time range changes."""
NUMERIC = 3
"""Grafana's number for: sort by number, rising. It sorts names alphabetically, and layers 2 before 10."""
TAG = "embedwatch"
CHOSEN = {"job": "$job", "instance": "$instance"}


def dashboard(title: str, *, uid: str, description: str, panels: Iterable[Panel]) -> dict[str, Any]:
    """Return a whole dashboard."""
    return {
        "annotations": {"list": [_firing(), _references(), _checkpoints()]},
        "description": description,
        "editable": False,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [_links()],
        "panels": laid_out(panels),
        "refresh": "30s",
        "schemaVersion": SCHEMA,
        "tags": [TAG],
        "templating": {"list": [_datasource(), *_variables()]},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "utc",
        "title": title,
        "uid": uid,
        "weekStart": "",
    }


def _datasource() -> dict[str, Any]:
    return {
        "current": {},
        "hide": 0,
        "label": "Data source",
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "type": "datasource",
    }


def _variables() -> list[dict[str, Any]]:
    """Return the variables from job to segment. Each is asked of a metric that exists as long as its process does."""
    process, space = f"{PREFIX}build_info", f"{PREFIX}window_rows"
    chain = (("job", "Job", process), ("instance", "Instance", process), ("model", "Model", space))
    found: list[dict[str, Any]] = []
    for name, label, metric in (*chain, ("place", "Place", space), ("segment", "Segment", space)):
        chosen = {variable["name"]: f"${variable['name']}" for variable in found}
        found.append(_variable(name, label, select(metric, like=chosen)))
    return found


def _variable(name: str, label: str, selector: str) -> dict[str, Any]:
    query = f"label_values({selector}, {name})"
    return {
        "allValue": ".+",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": query,
        "hide": 0,
        "includeAll": True,
        "label": label,
        "multi": True,
        "name": name,
        "options": [],
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": ON_TIME_CHANGE,
        "regex": "",
        "sort": NUMERIC,
        "type": "query",
    }


def _firing() -> dict[str, Any]:
    """Return the annotation that marks when our alerts fired."""
    equal, like = {"alertstate": "firing"}, {"alertname": "Embedwatch.*", **CHOSEN}
    expr = f"max by (alertname, model) ({select('ALERTS', equal, like=like)})"
    return _annotation("Alerts", expr, colour="red", title="{{alertname}}")


def _references() -> dict[str, Any]:
    """Return the annotation that marks when rows began to be compared with another reference."""
    found = select(f"{PREFIX}reference_created_timestamp_seconds", like={**CHOSEN, "model": "$model"})
    expr = f"max by (model, place) (changes({found}[$__rate_interval])) > 0"
    return _annotation("References", expr, colour="blue", title="another reference of {{place}}")


def _checkpoints() -> dict[str, Any]:
    """Return the annotation that marks when a token table was examined and was another than before."""
    found = select(f"{PREFIX}norm_mean", {"place": "token_table"}, like={**CHOSEN, "model": "$model"})
    expr = f"max by (model) (changes({found}[$__rate_interval])) > 0"
    return _annotation("Checkpoints", expr, colour="purple", title="checkpoint")


def _annotation(name: str, expr: str, *, colour: str, title: str) -> dict[str, Any]:
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expr,
        "iconColor": colour,
        "name": name,
        "step": "60s",
        "tagKeys": "model",
        "titleFormat": title,
    }


def _links() -> dict[str, Any]:
    return {
        "asDropdown": True,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": [TAG],
        "targetBlank": False,
        "title": "embedwatch",
        "type": "dashboards",
    }
