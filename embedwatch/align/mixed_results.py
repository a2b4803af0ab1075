"""What wrote the rows of a store: groups of rows, each written in one way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from embedwatch.core.verdict import STATUSES, Status

__all__ = ["Group", "Mixed"]

SCHEMA = 1
"""Version of the JSON that a Mixed writes."""


@dataclass(frozen=True)
class Group:
    """Rows of a store that were written in one way.

    Args:
        name: `agrees`, `rounded`, `norm`, `broken`, `swapped`, `recipe` or `other`; of a store alone, how rows look.
        told: what that means, with what reproduces the rows where something does.
        rows: how many.
        ids: row numbers, ascending.
        names: what people call the first of them.
        distance: median of 1 - cosine to what the model writes.
        status: how grave it is.
    """

    name: str
    told: str
    rows: int
    ids: tuple[int, ...]
    names: tuple[str, ...]
    distance: float | None
    status: Status

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.name,
            "told": self.told,
            "rows": self.rows,
            "ids": list(self.ids),
            "names": list(self.names),
            "distance": self.distance,
            "status": self.status,
        }


@dataclass(frozen=True)
class Mixed:
    """What wrote the rows of a store.

    Args:
        label: of the store.
        rows: that were read.
        groups: the largest agreeing one first, then by size.
        threshold: distance up to which a row agrees; `None` where nothing was expected.
        noise: median distance of the rows that agree.
        false_positives: share of agreeing rows that may be told as others: an upper bound, 95 times of 100.
        notes: what a reader must know.
        seconds: that it took.
    """

    label: str
    rows: int
    groups: tuple[Group, ...]
    threshold: float | None = None
    noise: float | None = None
    false_positives: float | None = None
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def status(self) -> Status:
        """The gravest group."""
        return max((group.status for group in self.groups), key=STATUSES.index, default="unknown")

    def counts(self) -> dict[str, int]:
        """Return the number of groups by status."""
        found = [group.status for group in self.groups]
        return {status: found.count(status) for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": SCHEMA,
            "label": self.label,
            "rows": self.rows,
            "status": self.status,
            "threshold": self.threshold,
            "noise": self.noise,
            "false_positives": self.false_positives,
            "groups": [group.to_json() for group in self.groups],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }
