"""History: a bounded list of Snapshots of one Space."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Snapshot

__all__ = ["History", "Keep"]

Keep = Literal["newest", "even"]
KEEPS: tuple[Keep, ...] = ("newest", "even")
FEWEST = {"newest": 1, "even": 2}
"""The smallest capacity; an even choice has both ends."""


class History:
    """At most `capacity` Snapshots, oldest first: the newest, or an even choice of all.

    An even choice holds every 2^k-th Snapshot, counted from the first, and the newest. When it is full, every second
    one goes; it is then at least half full. So a course of any length is seen from end to end.

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
        for snapshot in snapshots:
            self.append(snapshot)

    def append(self, snapshot: Snapshot) -> None:
        """Add the newest; where the capacity is reached, others go."""
        if self._keep == "even" and self._seen and (self._seen - 1) % self._stride:
            self._snapshots.pop()  # it was here for being the newest only
        self._snapshots.append(snapshot)
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

    def series(self, name: str, /, **labels: str) -> list[tuple[float, float]]:
        """Return `(step or time, value)` of one measurement wherever it has a number."""
        points = []
        for snapshot in self._snapshots:
            value = snapshot.number(name, **labels)
            if value is not None:
                provenance = snapshot.provenance
                points.append((float(provenance.time if provenance.step is None else provenance.step), value))
        return points
