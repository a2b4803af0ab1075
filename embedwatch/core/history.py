"""History: a bounded list of Snapshots of one Space."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Snapshot

__all__ = ["History", "Keep", "Points", "course_of"]

Keep = Literal["newest", "even"]
Points = list[tuple[float, float]]
"""Step and value, in the order of the steps."""
KEEPS: tuple[Keep, ...] = ("newest", "even")
RECENT = 50
"""So many of the newest are kept in any case, one after the other."""
FEWEST = {"newest": 1, "even": 2}
"""The smallest capacity; an even choice has both ends."""


class History:
    """At most `capacity` Snapshots, oldest first: the newest, or an even choice of all.

    An even choice holds every 2^k-th Snapshot, counted from the first, and the newest. When it is full, every second
    one goes; it is then at least half full. So a course of any length is seen from end to end. The newest 50 are there
    beside it, without gaps, for what adds up from window to window: `recent`.

    Args:
        snapshots: what it starts with.
        capacity: how many are kept.
        keep: which ones.

    Example:
        >>> len(History(capacity=3))
        0
    """

    def __init__(self, snapshots: Iterable[Snapshot] = (), *, capacity: int = 1_000, keep: Keep = "newest") -> None:
        if keep not in KEEPS:
            raise UsageError(f"`keep` must be one of {', '.join(KEEPS)}, got {keep!r}; choose one")
        if capacity < FEWEST[keep]:
            raise UsageError(
                f"`capacity` must be at least {FEWEST[keep]}, got {capacity}; name how many snapshots to keep"
            )
        self._capacity, self._keep = capacity, keep
        self._stride, self._seen = 1, 0
        self._snapshots: deque[Snapshot] = deque(maxlen=capacity if keep == "newest" else None)
        self._recent: deque[Snapshot] = deque(maxlen=RECENT)
        for snapshot in snapshots:
            self.append(snapshot)

    def append(self, snapshot: Snapshot) -> None:
        """Add the newest; where the capacity is reached, others go."""
        if self._keep == "even" and self._seen and (self._seen - 1) % self._stride:
            self._snapshots.pop()  # it was here for being the newest only
        self._snapshots.append(snapshot)
        self._recent.append(snapshot)
        self._seen += 1
        if len(self._snapshots) > self._capacity:
            self._thin()

    def _thin(self) -> None:
        """Let every second one go, but not the newest."""
        self._stride *= 2
        chosen = list(self._snapshots)[::2]
        if len(self._snapshots) % 2 == 0:
            chosen.append(self._snapshots[-1])
        self._snapshots = deque(chosen)

    def __len__(self) -> int:
        return len(self._snapshots)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._snapshots)

    def recent(self) -> list[Snapshot]:
        """Return the newest that were added, 50 at most and without gaps, oldest first."""
        return list(self._recent)

    def series(self, name: str, /, **labels: str) -> list[tuple[float, float]]:
        """Return `(step or time, value)` of one measurement wherever it has a number."""
        points = []
        for snapshot in self._snapshots:
            value = snapshot.number(name, **labels)
            if value is not None:
                provenance = snapshot.provenance
                points.append((float(provenance.time if provenance.step is None else provenance.step), value))
        return points


def course_of(name: str, snapshot: Snapshot, history: History | None, /, **labels: str) -> Points:
    """Return the steps and numbers of one measurement up to this Snapshot.

    What a resumed run went over again counts as it was last; Snapshots without a step, or without a number, are left
    out.

    Example:
        >>> from embedwatch.core.measurement import Metric
        >>> from embedwatch.core.snapshot import Provenance, Space
        >>> def snap(step, number):
        ...     found = (Metric("number", "A number.").measure(number),)
        ...     return Snapshot(Space("m", "p"), found, Provenance(time=0, rows=1, step=step))
        >>> course_of("number", snap(10, 3.0), History([snap(5, 1.0), snap(20, 9.0), snap(8, 2.0)]))
        [(5.0, 1.0), (8.0, 2.0), (10.0, 3.0)]
    """
    course: Points = []
    for each in (*(history or ()), snapshot):
        step, number = each.provenance.step, each.number(name, **labels)
        if step is None:
            continue
        while course and course[-1][0] >= step:
            course.pop()
        if number is not None:
            course.append((float(step), number))
    return course
