"""What Grafana does before it asks Prometheus: it lists the values of variables, and fills them into the queries."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embedwatch.operations import Query, dashboard_queries, expressions, resolve
from embedwatch.operations.queries import LABEL_VALUES, panels
from tests.prometheus_server import PrometheusServer, Sample

__all__ = ["Board", "Result"]

MOST_SERIES = 100
"""In one panel; more hide each other, and are slow to draw."""
RATE_SCRAPES = 4
"""Grafana's `$__rate_interval` is at least so many scrapes."""
LEGEND_LABEL = re.compile(r"\{\{(\w+)\}\}")
SPECIAL = re.compile(r"[$^*{}\[\]'+?.()|]")
"""Grafana puts two backslashes before these: the text stands in PromQL, which takes one of them."""
SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Result:
    """The series that one query found over a stretch of time, or at its end where the panel shows one moment."""

    query: Query
    series: list[Sample]

    @property
    def values(self) -> list[float]:
        """Every value of every series."""
        return [float(value) for sample in self.series for _, value in sample.get("values", [sample.get("value")])]

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it: only NaN, or a legend whose label the series lack. Empty is not wrong here."""
        if self.series and all(map(math.isnan, self.values)):
            yield f"{self.query.place} {self.query.ref}: only NaN"
        for label in LEGEND_LABEL.findall(self.query.legend):
            if any(not sample["metric"].get(label) for sample in self.series):
                yield f"{self.query.place} {self.query.ref}: no label {label}"


class Board:
    """A dashboard whose queries are asked of a Prometheus.

    Args:
        dashboard: as generated.
        server: who is asked.
        scrape: seconds between two scrapes.
        seconds: how far back the panels look.
    """

    def __init__(
        self, dashboard: Mapping[str, Any], server: PrometheusServer, *, scrape: float, seconds: float
    ) -> None:
        self.dashboard, self._server, self._scrape, self._seconds = dashboard, server, scrape, seconds

    def choices(self) -> dict[str, list[str]]:
        """Return the values that each variable offers, each within what all before it offer."""
        offered: dict[str, list[str]] = {}
        for variable in self.dashboard["templating"]["list"]:
            query = variable["query"]
            match = LABEL_VALUES.fullmatch(query["query"]) if isinstance(query, Mapping) else None
            if match is not None:
                label = query["query"].rpartition(",")[2].strip(" )")
                selector = resolve(match.group(1), {name: chosen(values) for name, values in offered.items()})
                parameters = {"match[]": selector}
                offered[variable["name"]] = self._server.get(f"label/{label}/values", **parameters)
        return offered

    def results(self, variables: Mapping[str, str] | None = None) -> list[Result]:
        """Ask the queries of all panels; without variables, with everything chosen."""
        found = []
        for panel in panels(self.dashboard):
            filled = {**(variables or {}), "__rate_interval": self._rate_interval(panel.get("interval", ""))}
            asked = [query for query in expressions(self.dashboard) if query.place == panel["title"]]
            for query, target in zip(asked, panel["targets"], strict=True):
                series = self._ask(resolve(query.expr, filled), instant=target.get("instant", False))
                found.append(Result(query, series))
        return found

    def others(self) -> list[Result]:
        """Ask the queries of variables and annotations."""
        shown = {query.place for query in expressions(self.dashboard)}
        rest = [query for query in dashboard_queries(self.dashboard) if query.place not in shown]
        return [Result(query, self._ask(resolve(query.expr), instant=False)) for query in rest]

    def _ask(self, expr: str, *, instant: bool) -> list[Sample]:
        if instant:
            return self._server.query(expr)
        now = time.time()
        start, end, step = f"{now - self._seconds:.3f}", f"{now:.3f}", f"{self._scrape:g}"
        data = self._server.get("query_range", query=expr, start=start, end=end, step=step)
        series: list[Sample] = data["result"]
        return series

    def _rate_interval(self, smallest: str) -> str:
        interval = float(smallest[:-1]) * SECONDS[smallest[-1]] if smallest else self._scrape
        return f"{max(interval + self._scrape, RATE_SCRAPES * self._scrape):g}s"


def chosen(values: Sequence[str]) -> str:
    """Return what Grafana writes for several values of a variable in a regular expression between double quotes."""
    escaped = [SPECIAL.sub(r"\\\\\g<0>", value.replace("\\", 4 * "\\")) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def crowded(results: Sequence[Result]) -> list[str]:
    """Return the panels with more series than can be told apart."""
    found: dict[str, int] = {}
    for result in results:
        found[result.query.place] = found.get(result.query.place, 0) + len(result.series)
    return [f"{title}: {number} series" for title, number in found.items() if number > MOST_SERIES]
