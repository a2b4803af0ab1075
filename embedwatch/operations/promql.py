"""Text of PromQL and of Prometheus' templates: selectors, and queries inside an annotation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from embedwatch.core.snapshot import OF_MODEL
from embedwatch.exposition import SPACE_LABELS

__all__ = ["BRIDGE", "IDENTITY", "PROCESS", "SELDOM", "by", "last", "look_up", "select"]

PROCESS = ("job", "instance")
"""Labels that Prometheus itself gives to all series of one scraped process."""
IDENTITY = (*PROCESS, *SPACE_LABELS)
BRIDGE = 15
"""Minutes for which the last known value stands in for one that is missing. A series that ends would otherwise resolve
its alert, as if all were well; within this time `EmbedwatchDown` or `EmbedwatchStale` takes over."""
SELDOM = ("token_table", *OF_MODEL)
"""Places that are examined at the start, at checkpoints and at the end only: the age of their windows says nothing."""


def select(
    metric: str,
    equal: Mapping[str, str] | None = None,
    *,
    unequal: Mapping[str, str] | None = None,
    like: Mapping[str, str] | None = None,
    unlike: Mapping[str, str] | None = None,
) -> str:
    """Return a selector of one metric: labels that are `equal`, or not, or match a regular expression (`like`), or not.

    Example:
        >>> select("up", {"job": "a"}, unequal={"zone": "b"}, like={"instance": ".+"})
        'up{job="a",zone!="b",instance=~".+"}'
        >>> select("up")
        'up'
    """
    kinds = (("=", equal), ("!=", unequal), ("=~", like), ("!~", unlike))
    matchers = [
        f"{name}{sign}{json.dumps(value, ensure_ascii=False)}"
        for sign, labels in kinds
        for name, value in (labels or {}).items()
    ]
    return f"{metric}{{{','.join(matchers)}}}" if matchers else metric


def by(aggregation: str, labels: Iterable[str], inner: str) -> str:
    """Return an aggregation over all labels but these, written on several lines.

    Example:
        >>> print(by("max", ["job"], "up"))
        max by (job) (
          up
        )
    """
    indented = "\n".join(f"  {line}" for line in inner.split("\n"))
    return f"{aggregation} by ({', '.join(labels)}) (\n{indented}\n)"


def last(aggregation: str, labels: Iterable[str], metric: str) -> str:
    """Return an aggregation of the last known values of a metric; `BRIDGE` says how long they hold.

    Example:
        >>> print(last("max", ["job"], "up"))
        max by (job) (
          last_over_time(up[15m])
        )
    """
    return by(aggregation, labels, f"last_over_time({metric}[{BRIDGE}m])")


def look_up(
    metric: str,
    labels: Iterable[str],
    *,
    fixed: Mapping[str, str] | None = None,
    function: str = "last_over_time",
    condition: str = "",
) -> str:
    """Return a template pipeline that queries a metric of the very thing an alert is about.

    Args:
        metric: whose value is wanted.
        labels: labels that it shares with the alert. Go's `%q` quotes their values as PromQL does, whatever they hold.
        fixed: further labels with their values.
        function: makes one value of the last minutes.
        condition: what the value must be to be found, such as ` > 0`.

    Example:
        >>> look_up("x", ["model"], fixed={"q": "1"})
        'printf `last_over_time(x{model=%q,q="1"}[15m])` $labels.model | query'
    """
    names = list(labels)
    matchers = [f"{name}=%q" for name in names]
    matchers += [f"{name}={json.dumps(value)}" for name, value in (fixed or {}).items()]
    arguments = "".join(f" $labels.{name}" for name in names)
    return f"printf `{function}({metric}{{{','.join(matchers)}}}[{BRIDGE}m]){condition}`{arguments} | query"
