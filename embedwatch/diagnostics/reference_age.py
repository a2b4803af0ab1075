"""How large and how old the reference is that rows are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric

__all__ = ["ReferenceAge"]

ROWS = Metric("reference_rows", "Rows of the reference that this place is compared with.", "rows", headline=False)
CREATED = Metric(
    "reference_created_timestamp_seconds",
    "When the reference that this place is compared with was created, in seconds since 1970.",
    "seconds",
    headline=False,
)


class Made(Protocol):
    """What a reference says of itself: how many rows, and when it was made."""

    @property
    def rows(self) -> int:
        """Rows of all its sources."""

    @property
    def created(self) -> float:
        """Seconds since the epoch."""


@dataclass(frozen=True)
class _Example:
    rows: int
    created: float


class ReferenceAge(Diagnostic):
    """Says of what rows are compared with how many rows it rests on and when it was created.

    A reference ages: what was healthy then need not be what is healthy now.

    Example:
        >>> [measurement.number for measurement in ReferenceAge().examine(_Example(4_000, 1.7e9))[0]]
        [4000.0, 1700000000.0]
    """

    name = "reference_age"
    title = "size and age of the reference"
    examines = "reference"
    metrics = (ROWS, CREATED)

    def examine(self, subject: Made) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return how many rows there are, and when it was created."""
        return [ROWS.measure(subject.rows), CREATED.measure(subject.created)], []

    @classmethod
    def examples(cls) -> Iterable[Made]:
        """Yield one of 4,000 rows."""
        return [_Example(4_000, 1.7e9)]
