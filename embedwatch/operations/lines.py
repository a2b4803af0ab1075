"""Queries of dashboards, in the shapes that recur: the worst Spaces, their limit, a rate, an age, the latest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from embedwatch.exposition import BUILD_INFO, PREFIX, SPACE_LABELS, THRESHOLD
from embedwatch.operations.panels import LIMIT, Panel, target, time_series
from embedwatch.operations.promql import PROCESS, select

__all__ = [
    "CHOSEN",
    "HEALTHY",
    "LEGEND",
    "MODEL",
    "SHOWN",
    "age",
    "chosen",
    "drawn",
    "latest",
    "limit",
    "of_process",
    "quantile",
    "rate",
    "worst",
]

HEALTHY = "Healthy: "
"""What follows in a description says what good looks like."""
SHOWN = 8
"""Lines in one panel; more are not told apart."""
MODEL = ("job", "instance", "model")
"""Variables that select, where the place is fixed or there is none."""
CHOSEN = (*MODEL, "place", "segment")
LEGEND = "{{model}} / {{place}} {{segment}}"


def chosen(
    name: str,
    equal: Mapping[str, str] | None = None,
    *,
    unlike: Mapping[str, str] | None = None,
    variables: Iterable[str] = CHOSEN,
) -> str:
    """Return the selector of a metric under the dashboard's variables.

    Example:
        >>> chosen("norm_mean", variables=("job",))
        'embedwatch_norm_mean{job=~"$job"}'
    """
    return select(PREFIX + name, equal, unlike=unlike, like={variable: f"${variable}" for variable in variables})


def worst(
    name: str,
    equal: Mapping[str, str] | None = None,
    *,
    side: str = "above",
    labels: tuple[str, ...] = SPACE_LABELS,
    legend: str = LEGEND,
    ref: str = "A",
    shown: int = SHOWN,
    variables: Iterable[str] = CHOSEN,
) -> dict[str, Any]:
    """Return the query of the Spaces with the most suspicious values of a gauge; of several instances, the worst.

    Args:
        name: of the metric, without prefix.
        equal: further labels with their values.
        side: on which side trouble is, `above` or `below`, as in a Limit.
        labels: that tell the lines apart.
        legend: how a line is named.
        ref: letter of the query.
        shown: number of lines.
        variables: of the dashboard that select.
    """
    top, aggregation = ("topk", "max") if side == "above" else ("bottomk", "min")
    inner = f"{aggregation} by ({', '.join(labels)}) ({chosen(name, equal, variables=variables)})"
    return target(f"{top}({shown}, {inner})", legend, ref=ref)


def drawn(title: str, what: str, good: str, *targets: dict[str, Any], unit: str = "none", interval: str = "") -> Panel:
    """Return lines over time.

    Args:
        title: what is drawn.
        what: it is, in sentences.
        good: what good looks like; it goes on after `HEALTHY`.
        targets: the queries.
        unit: Grafana's name of the unit.
        interval: smallest step between points; empty leaves it to the data source.

    Example:
        >>> drawn("Steps", "Steps done.", "a line up.", latest("training_step"))["description"]
        'Steps done. Healthy: a line up.'
    """
    return time_series(title, f"{what} {HEALTHY}{good}", targets, unit=unit, interval=interval)


def age(
    name: str, *, labels: tuple[str, ...] = SPACE_LABELS, legend: str = LEGEND, variables: Iterable[str] = CHOSEN
) -> dict[str, Any]:
    """Return the query of the time since what a gauge holds as seconds since 1970, oldest first."""
    inner = f"min by ({', '.join(labels)}) ({chosen(name, variables=variables)})"
    return target(f"topk({SHOWN}, time() - {inner})", legend)


def of_process(metric: str, *, side: str = "above", function: str = "") -> dict[str, Any]:
    """Return the query of what Prometheus or its client library say of a process, of those that are ours."""
    like = {name: f"${name}" for name in PROCESS}
    top, found = ("topk" if side == "above" else "bottomk"), select(metric, like=like)
    found = f"{function}({found}[$__rate_interval])" if function else found
    ours = f"group by ({', '.join(PROCESS)}) ({select(BUILD_INFO.name, like=like)})"
    return target(f"{top}({SHOWN}, {found} and on ({', '.join(PROCESS)}) {ours})", "{{instance}}")


def limit(check: str) -> dict[str, Any]:
    """Return the query of a check's limits."""
    return target(
        f"max by (severity) ({select(THRESHOLD.name, {'check': check}, like={name: f'${name}' for name in CHOSEN})})",
        "{{severity}} at",
        ref=LIMIT,
    )


def latest(
    name: str, *, aggregation: str = "max", labels: tuple[str, ...] = ("model",), legend: str = "{{model}}"
) -> dict[str, Any]:
    """Return the query of a gauge of which a model has one."""
    inner = f"{aggregation} by ({', '.join(labels)}) ({chosen(name, variables=MODEL)})"
    return target(f"topk({SHOWN}, {inner})", legend)


def rate(
    name: str, *, labels: tuple[str, ...], legend: str, variables: tuple[str, ...] = MODEL, function: str = "rate"
) -> dict[str, Any]:
    """Return the query of a counter's growth."""
    selector = chosen(name, variables=variables)
    inner = f"sum by ({', '.join(labels)}) ({function}({selector}[$__rate_interval]))"
    return target(f"topk({SHOWN}, {inner})", legend)


def quantile(name: str, q: float, *, ref: str, shown: int) -> dict[str, Any]:
    """Return the query of a quantile of a histogram, over all rows of the last windows."""
    buckets = chosen(f"{name}_bucket")
    labels = ", ".join(("le", *SPACE_LABELS))
    inner = f"histogram_quantile({q:g}, sum by ({labels}) (rate({buckets}[$__rate_interval])))"
    return target(f"topk({shown}, {inner})", f"{q:.0%} {LEGEND}", ref=ref)
