"""Check: a rule that turns a Snapshot into Evidence. Needs no torch; runs from JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import Plugin
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

__all__ = ["Check", "ThresholdCheck"]


class Check(Plugin, ABC):
    """A rule about one Space. Its texts become the runbook: what it means, what it costs, how to look, what to do."""

    kind: ClassVar[str] = "check"
    title: ClassVar[str] = ""
    """A few words for a table."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Names of the measurements that it needs; without them in the Snapshot it is not asked."""
    limit: ClassVar[Limit | None] = None
    exhibits: ClassVar[tuple[str, ...]] = ()
    """Names of the exhibits that show who is to blame."""
    meaning: ClassVar[str] = ""
    impact: ClassVar[str] = ""
    diagnosis: ClassVar[str] = ""
    mitigation: ClassVar[str] = ""

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the Snapshot holds what this Check reads."""
        return bool(self.reads) and all(snapshot.get(name) is not None for name in self.reads)

    @abstractmethod
    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return what the Snapshot shows, beside the limit."""


class ThresholdCheck(Check):
    """Judges one number against one fixed Limit: the base of most checks.

    A subclass sets `metric` and `limit`, and may override `minimum_rows` and `reason`.
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
