"""What checking a canary found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from embedwatch.checks.canary import cause_of
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst

__all__ = ["OUTCOME_SCHEMA", "Outcome"]

OUTCOME_SCHEMA = 1
"""Version of the JSON that an Outcome writes."""


@dataclass(frozen=True)
class Outcome:
    """A canary that was embedded again.

    Args:
        snapshot: measurements of the texts then and now.
        verdicts: whether it is the same space, and if not, what became of it.
        exhibits: which texts moved.
        seconds: that embedding and judging took.
        errors: exceptions of ours that were counted: (stage, name, number).
    """

    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...]
    seconds: float
    errors: tuple[tuple[str, str, int], ...] = ()

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.verdicts])

    @property
    def cause(self) -> str:
        """What happened, in a word or two: `unchanged`, `rotated`, `other model`, …; empty where nothing is known."""
        cause = cause_of(self.snapshot)
        return "" if cause is None else cause.name

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": OUTCOME_SCHEMA,
            "status": self.status,
            "cause": self.cause,
            "counts": self.counts(),
            "snapshot": self.snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "seconds": self.seconds,
        }
