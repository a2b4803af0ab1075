"""Comparison: what was found when rows were compared with a reference, as a whole and by segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst

__all__ = ["COMPARISON_SCHEMA", "Comparison", "Segmented", "Side"]

COMPARISON_SCHEMA = 1
"""Version of the JSON that a Comparison writes."""


@dataclass(frozen=True)
class Side:
    """One of the two sources, as it was read."""

    label: str
    rows: int
    fingerprint: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"label": self.label, "rows": self.rows, "fingerprint": self.fingerprint, "notes": list(self.notes)}


@dataclass(frozen=True)
class Segmented:
    """What a comparison by segments found beside the whole.

    Args:
        by: column that holds the segments.
        segments: name of each to its comparison.
        left_out: name of each that was not compared to the reason.
    """

    by: str
    segments: Mapping[str, Comparison]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: the second source as a Space, judged against the first.

    Args:
        reference: the first source.
        snapshot: measurements of the second beside it.
        verdicts: whether they differ.
        exhibits: which rows and regions.
        level: share of healthy pairs that may be called different.
        seconds: that it took.
        errors: exceptions of ours that were counted: (stage, name, number).
        segmented: the comparisons of segments, where it was asked for; the whole then has the old shares of these.
    """

    reference: Side
    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...]
    level: float
    seconds: float
    errors: tuple[tuple[str, str, int], ...] = ()
    segmented: Segmented | None = None

    @property
    def all_verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of the whole, then those of segments."""
        parts = () if self.segmented is None else self.segmented.segments.values()
        return (*self.verdicts, *(verdict for part in parts for verdict in part.verdicts))

    @property
    def status(self) -> Status:
        """The gravest verdict, segments too; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.all_verdicts if verdict.status != "unknown"])

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status, segments too."""
        found = Counter(verdict.status for verdict in self.all_verdicts)
        return {status: found[status] for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": COMPARISON_SCHEMA,
            "status": self.status,
            "counts": self.counts(),
            "level": self.level,
            "reference": self.reference.to_json(),
            "snapshot": self.snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "seconds": self.seconds,
            **({} if self.segmented is None else self._segments()),
        }

    def _segments(self) -> dict[str, Any]:
        found = self.segmented
        if found is None:
            return {}
        parts = {name: part.to_json() for name, part in found.segments.items()}
        return {"by": found.by, "segments": parts, "left_out": dict(found.left_out)}
