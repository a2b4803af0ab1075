"""History: a bounded list of Snapshots of one Space."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Snapshot

__all__ = ["History"]


class History:
    """The last `capacity` Snapshots, oldest first.

    Example:
        >>> len(History(capacity=3))
        0
    """

    def __init__(self, snapshots: Iterable[Snapshot] = (), *, capacity: int = 1_000) -> None:
        if capacity < 1:
            raise UsageError(f"`capacity` must be at least 1, got {capacity}; name how many snapshots to keep")
        self._snapshots: deque[Snapshot] = deque(snapshots, maxlen=capacity)

    def append(self, snapshot: Snapshot) -> None:
        """Add the newest; the oldest goes when the capacity is reached."""
        self._snapshots.append(snapshot)

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
