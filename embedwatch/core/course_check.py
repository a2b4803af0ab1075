"""CourseCheck: the base of checks that judge how a measurement goes from window to window."""

from __future__ import annotations

from typing import Any, ClassVar

from embedwatch.core.check import Check
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence

__all__ = ["CourseCheck"]


class CourseCheck(Check):
    """Judges how one measurement of a training goes from window to window.

    A subclass sets `metric` and `limit`, and writes `evaluate`. It is asked only of windows in which there is a number.
    """

    metric: ClassVar[str]
    """Without a number of it in a window the check is not asked."""
    unit: ClassVar[str] = ""
    """Of what is judged."""
    roles = ("training",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "metric" in cls.__dict__ and "reads" not in cls.__dict__:
            cls.reads = (cls.metric,)
        super().__init_subclass__(**kwargs)

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether it holds here, and there is a number."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def found(self, snapshot: Snapshot, value: float, reason: str) -> Evidence:
        """Return a value beside the limit."""
        rows = snapshot.provenance.rows
        return Evidence(value, self.limit, rows, reason, unit=self.unit, exhibits=self.exhibits)

    def harmless(self, snapshot: Snapshot, value: float, reason: str) -> Evidence:
        """Return a value without a limit: whatever it is, it harms nothing here."""
        return Evidence(value, None, snapshot.provenance.rows, reason, unit=self.unit)

    def too_few(self, snapshot: Snapshot, count: int, needed: int, what: str = "windows") -> Evidence:
        """Return no value, since there are not enough windows to compare."""
        return Evidence(
            None, self.limit, snapshot.provenance.rows, f"{count} {what} are too few, needs {needed}.", unit=self.unit
        )
