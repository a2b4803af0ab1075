"""Check: a rule that turns a Snapshot into Evidence. Needs no torch; runs from JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import Plugin
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

__all__ = [
    "ENCODED",
    "LEAST_DISTINCT",
    "LEAST_QUERIES",
    "LIVE",
    "STORED",
    "Check",
    "RangeCheck",
    "ThresholdCheck",
    "role_of",
]

STORED = ("vectors", "table", "pooled")
"""Roles of places whose rows are kept and compared: alike, huge or repeated rows are defects there."""
LIVE = ("token", "embedding", "hidden")
"""Roles of places inside a model at work, one row a token: a few huge dimensions and rows are normal there."""
ENCODED = ("pooled", *LIVE)
"""Roles of places that show what a model makes of its input: input that is all alike makes rows that are all alike."""
DISTINCT, INPUTS = "distinct_rows", "distinct_inputs"
"""Measurements that tell a model that gives one vector for many inputs from one that is asked the same again."""
LEAST_DISTINCT = 10
"""Distinct rows below which a window says what came again and again, and nothing of a distribution."""
LEAST_QUERIES = 256
"""Sampled rows of attention, one for each head of each query, below which heads are not judged."""


def role_of(snapshot: Snapshot) -> str:
    """Return the role of the place that a Snapshot shows; `vectors` where it is not known."""
    return snapshot.provenance.role or "vectors"


class Check(Plugin, ABC):
    """A rule about one Space. Its texts become the runbook: what it means, what it costs, how to look, what to do."""

    kind: ClassVar[str] = "check"
    title: ClassVar[str] = ""
    """A few words for a table."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Names of the measurements that it needs; without them in the Snapshot it is not asked."""
    weighs: ClassVar[tuple[str, ...]] = ()
    """Names of the measurements that it takes into account where they are there; naming the check keeps them too."""
    roles: ClassVar[tuple[str, ...]] = ()
    """Roles of the places at which it holds, of `embedwatch.core.snapshot.ROLES`; empty for all."""
    limit: ClassVar[Limit | None] = None
    floor: ClassVar[Limit | None] = None
    """Where a value turns too small, for one that may be too large or too small."""
    exhibits: ClassVar[tuple[str, ...]] = ()
    """Names of the exhibits that show who is to blame."""
    severity: ClassVar[str] = "warning"
    """How urgent an alert on its `fail` is: `warning` for the next working day, `critical` for now."""
    meaning: ClassVar[str] = ""
    impact: ClassVar[str] = ""
    diagnosis: ClassVar[str] = ""
    mitigation: ClassVar[str] = ""

    @classmethod
    def over_time(cls, *, alarms: str, spaces: Callable[[], int]) -> Check:
        """Return it as it is asked of one window after another; by default no otherwise than once.

        Args:
            alarms: false alarms that are accepted, like "1 per 30d".
            spaces: returns how many Spaces share them now, those that are compared with a reference.
        """
        del alarms, spaces
        return cls()

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the Snapshot shows a place at which this Check holds, and holds what it reads."""
        fits = not self.roles or role_of(snapshot) in self.roles
        return fits and bool(self.reads) and all(snapshot.get(name) is not None for name in self.reads)

    @abstractmethod
    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return what the Snapshot shows, beside the limit."""


class ThresholdCheck(Check):
    """Judges one number against one fixed Limit: the base of most checks.

    A subclass sets `metric` and `limit`, and may override `minimum_rows`, `minimum_distinct` and `reason`.
    """

    metric: ClassVar[str]
    labels: ClassVar[Mapping[str, str]] = {}
    """Labels of the measurement, where the metric has several."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "metric" in cls.__dict__ and "reads" not in cls.__dict__:
            cls.reads = (cls.metric,)
        super().__init_subclass__(**kwargs)

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which the value says nothing."""
        del snapshot
        return 1

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return the number of distinct rows below which the value tells of the input and not of the model.

        With so few rows it is judged all the same where at least as many inputs are known to differ.
        """
        del snapshot
        return 0

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value; empty leaves the wording to judging."""
        del snapshot, measurement
        return ""

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the value beside the limit; no value where too few rows were seen."""
        del reference, history
        rows = snapshot.provenance.rows
        measurement = snapshot.get(self.metric, **self.labels)
        needed = self.minimum_rows(snapshot)
        if measurement is None or measurement.number is None or rows < needed:
            short = f"{rows:,} rows are too few, needs {needed:,}." if rows < needed else "Not enough data for a value."
            return Evidence(None, self.limit, rows, short, self.metric)
        if alike := self._alike(snapshot):
            return Evidence(None, self.limit, rows, alike, self.metric)
        return Evidence(
            measurement.number,
            self.limit,
            rows,
            self.reason(snapshot, measurement),
            measurement=self.metric,
            unit=measurement.metric.unit,
            error=measurement.error,
            exhibits=self.exhibits,
        )

    def _alike(self, snapshot: Snapshot) -> str:
        """Return a sentence where too few rows of a model differ and too few inputs; empty where that is not so."""
        distinct, needed = snapshot.number(DISTINCT), self.minimum_distinct(snapshot)
        if distinct is None or distinct >= needed or role_of(snapshot) not in ENCODED:
            return ""
        inputs, rows = snapshot.number(INPUTS), snapshot.provenance.rows
        if inputs is None:
            return (
                f"Inputs are alike, or one vector stands for many: {distinct:,.0f} distinct rows of "
                f"{rows:,}, needs {needed:,}."
            )
        if inputs >= needed:
            return ""
        return f"Inputs are alike: {rows:,} rows of {inputs:,.0f} different ones, needs {needed:,}."


class RangeCheck(ThresholdCheck):
    """Judges one number that may be too large or too small.

    A subclass sets `limit` for the one and `floor` for the other; the Evidence carries the one that was crossed.
    """

    def value(self, snapshot: Snapshot, number: float) -> float | None:
        """Return what is judged, where it is not the measurement itself."""
        del snapshot
        return number

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the value beside the limit that it crossed, or the upper one."""
        evidence = super().evaluate(snapshot, reference, history)
        value = None if evidence.value is None else self.value(snapshot, evidence.value)
        too_small = value is not None and self.floor is not None and self.floor.status(value) != "ok"
        return replace(evidence, value=value, limit=self.floor if too_small else self.limit)
