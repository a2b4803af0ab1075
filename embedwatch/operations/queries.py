"""Every PromQL expression of rules and dashboards, so that tests can parse them, name their metrics and run them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["DEFAULTS", "Query", "dashboard_queries", "expressions", "panels", "resolve", "rule_expressions"]

DEFAULTS = {
    "job": ".+",
    "instance": ".+",
    "model": ".+",
    "place": ".+",
    "segment": ".+",
    "__rate_interval": "5m",
    "__interval": "1m",
    "__range": "1h",
}
"""What the dashboard's variables stand for when everything is chosen."""
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
LABEL_VALUES = re.compile(r"label_values\((.+), *\w+\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and where it stands.

    Args:
        place: title of its panel, name of its variable or annotation, or name of its alert.
        expr: PromQL, with Grafana's variables in it where it comes from a dashboard.
        legend: how its series are named; `{{label}}` stands for a label.
        ref: letter of the query within its panel.
    """

    place: str
    expr: str
    legend: str = ""
    ref: str = "A"


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every panel that shows something; rows only head them."""
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            yield panel
        yield from panel.get("panels", ())


def expressions(dashboard: Mapping[str, Any]) -> list[Query]:
    """Return the queries of all panels."""
    return [
        Query(panel["title"], target["expr"], target.get("legendFormat", ""), target["refId"])
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]


def dashboard_queries(dashboard: Mapping[str, Any]) -> list[Query]:
    """Return the queries of panels, variables and annotations; of a variable, the selector whose label it lists."""
    variables = [
        Query(f"variable {variable['name']}", match.group(1))
        for variable in dashboard["templating"]["list"]
        if isinstance(variable["query"], Mapping) and (match := LABEL_VALUES.fullmatch(variable["query"]["query"]))
    ]
    annotations = [
        Query(f"annotation {annotation['name']}", annotation["expr"])
        for annotation in dashboard["annotations"]["list"]
        if "expr" in annotation
    ]
    return [*expressions(dashboard), *variables, *annotations]


def rule_expressions(rules: Mapping[str, Any]) -> list[Query]:
    """Return the expressions of all rules."""
    return [
        Query(rule.get("alert", rule.get("record", "")), rule["expr"])
        for group in rules["groups"]
        for rule in group["rules"]
    ]


def resolve(expr: str, variables: Mapping[str, str] | None = None) -> str:
    """Return an expression with Grafana's variables filled in; those that are not given choose everything.

    Example:
        >>> resolve('rate(a_total{job=~"$job"}[$__rate_interval])', {"job": "b"})
        'rate(a_total{job=~"b"}[5m])'

    Raises:
        KeyError: for a variable that the dashboard does not have.
    """
    known = {**DEFAULTS, **(variables or {})}
    return VARIABLE.sub(lambda match: known[match.group(1) or match.group(2)], expr)
