"""A Grafana dashboard around its panels: variables that chain, annotations, and what makes it stable."""

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


def dashboard(title: str, *, uid: str, description: str, panels: Iterable[Panel]) -> dict[str, Any]:
    """Return a whole dashboard."""
    return {
        "annotations": {"list": [_firing()]},
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
    """Return the variables from job to place. Each is asked of a metric that exists as long as its process does."""
    process, space = f"{PREFIX}build_info", f"{PREFIX}window_rows"
    chain = (("job", "Job", process), ("instance", "Instance", process), ("model", "Model", space))
    found: list[dict[str, Any]] = []
    for name, label, metric in (*chain, ("place", "Place", space)):
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
    equal, like = {"alertstate": "firing"}, {"alertname": "Embedwatch.*", "job": "$job", "instance": "$instance"}
    return {
        "datasource": DATASOURCE,
        "enable": True,
        "expr": f"max by (alertname, model) ({select('ALERTS', equal, like=like)})",
        "iconColor": "red",
        "name": "Alerts",
        "step": "60s",
        "tagKeys": "model",
        "titleFormat": "{{alertname}}",
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
