"""Measurement: one named value; Metric: its declaration; Histogram: a value that is a distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from embedwatch.core.errors import InputError, RegistrationError, UsageError

__all__ = ["Histogram", "Kind", "Measurement", "Metric", "Number"]

DIGITS = 3
"""Significant digits that a person reads, unless a metric says otherwise."""
Kind = Literal["gauge", "counter", "histogram"]
KINDS: tuple[Kind, ...] = ("gauge", "counter", "histogram")
Number = int | float


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts between bounds, mergeable by addition.

    Args:
        bounds: upper edges, strictly increasing; a last bucket for everything above is implied.
        counts: one more than `bounds`; `counts[i]` holds the values `bounds[i-1] < v <= bounds[i]`.
        sum: sum of all values.
        n: number of values, the sum of `counts`.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    n: int

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bounds) + 1:
            raise UsageError(
                f"`counts` must have one entry more than `bounds` ({len(self.bounds)}), got {len(self.counts)}; "
                "add the bucket above the last bound"
            )
        if any(low >= high for low, high in pairwise(self.bounds)) or min(self.counts) < 0:
            raise UsageError("`bounds` must rise and `counts` must not be negative; sort the bounds and count again")
        if sum(self.counts) != self.n:
            raise UsageError(
                f"`n` must be the sum of `counts` ({sum(self.counts)}), got {self.n}; count each value once"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"bounds": list(self.bounds), "counts": list(self.counts), "sum": self.sum, "n": self.n}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Histogram:
        """Read what `to_json` wrote."""
        return cls(tuple(data["bounds"]), tuple(data["counts"]), float(data["sum"]), int(data["n"]))


@dataclass(frozen=True, slots=True)
class Metric:
    """Declaration of a measurement: what a Statistic or Diagnostic promises to deliver.

    A gauge says how it stood when the window closed; a counter or histogram counts what this window saw alone, and
    whoever exposes it adds the windows up.

    Args:
        name: snake case; `_ratio` for quotients, `_total` for counters; cosines carry no unit suffix.
        help: one sentence that says what the number is.
        unit: base unit as a plural noun ("rows", "dimensions", "seconds"), empty for pure numbers.
        kind: gauge, counter or histogram.
        healthy: what a healthy space shows, in words for people; empty where nothing general holds.
        labels: names of the labels that its measurements carry.
        digits: significant digits worth showing to a person.
        headline: worth a line in a table for people, even where no check judges it.
    """

    name: str
    help: str
    unit: str = ""
    kind: Kind = "gauge"
    healthy: str = ""
    labels: tuple[str, ...] = ()
    digits: int = DIGITS
    headline: bool = True

    @property
    def title(self) -> str:
        """The name in words, for people."""
        return self.name.removesuffix("_ratio").removesuffix("_total").replace("_", " ")

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RegistrationError(f"`kind` must be one of {', '.join(KINDS)}, got {self.kind!r}; choose one")
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise RegistrationError(f"`name` must be snake case, got {self.name!r}; use lower case and underscores")
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise RegistrationError(f"counters, and only they, end in `_total`, got {self.name!r} of kind {self.kind}")
        if not self.help.endswith("."):
            raise RegistrationError(f"`help` of {self.name!r} must be a sentence that ends in a full stop")

    def missing(self) -> Measurement:
        """Make the Measurement that says only: there should be a value, and there is none."""
        return Measurement(self, None)

    def measure(self, value: Number | Histogram | None, *, error: float | None = None, **labels: str) -> Measurement:
        """Make the Measurement of this Metric. A value that is not finite becomes `None`: not enough data."""
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        if set(labels) != set(self.labels):
            raise UsageError(
                f"{self.name} takes the labels {self.labels}, got {tuple(labels)}; declare what you deliver"
            )
        return Measurement(self, value, labels={name: labels[name] for name in self.labels}, error=error)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One named value. `None` means: not enough data.

    Args:
        metric: its declaration.
        value: a finite number, a Histogram, or `None`.
        labels: label name to value.
        error: standard error or error bound of an approximate value, in the value's unit.
    """

    metric: Metric
    value: Number | Histogram | None
    labels: Mapping[str, str] = field(default_factory=dict)
    error: float | None = None

    @property
    def name(self) -> str:
        """Name of the metric."""
        return self.metric.name

    @property
    def key(self) -> str:
        """Name and labels in one text: `norm_quantile{q=0.5}`."""
        labels = ",".join(f"{name}={value}" for name, value in self.labels.items())
        return f"{self.name}{{{labels}}}" if labels else self.name

    @property
    def number(self) -> float | None:
        """The value as a finite number; `None` for a histogram, for not enough data, and for what is not finite."""
        if self.value is None or isinstance(self.value, Histogram):
            return None
        return float(self.value) if math.isfinite(self.value) else None

    def _plain(self) -> Number | None:
        """The value as JSON can say it: JSON has no NaN and no Inf."""
        return None if self.number is None or isinstance(self.value, Histogram) else self.value

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        data: dict[str, Any] = {
            "name": self.name,
            "kind": self.metric.kind,
            "unit": self.metric.unit,
            "help": self.metric.help,
            "value": self.value.to_json() if isinstance(self.value, Histogram) else self._plain(),
        }
        if self.metric.healthy:
            data["healthy"] = self.metric.healthy
        if self.metric.digits != DIGITS:
            data["digits"] = self.metric.digits
        if not self.metric.headline:
            data["headline"] = False
        if self.labels:
            data["labels"] = dict(self.labels)
        if self.error is not None:
            data["error"] = self.error
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Read what `to_json` wrote."""
        labels = dict(data.get("labels", {}))
        metric = Metric(
            data["name"],
            data["help"],
            data["unit"],
            data["kind"],
            data.get("healthy", ""),
            tuple(labels),
            data.get("digits", DIGITS),
            headline=data.get("headline", True),
        )
        value = data["value"]
        if isinstance(value, bool) or not isinstance(value, int | float | Mapping | None):
            raise InputError(f"value of {data['name']!r} must be a number, a histogram or null, got {value!r}")
        return cls(
            metric, Histogram.from_json(value) if isinstance(value, Mapping) else value, labels, data.get("error")
        )
