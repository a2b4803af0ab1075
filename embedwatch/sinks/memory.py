"""Keeps what it is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

CAPACITY = 1_000


class Memory(Sink):
    """Keeps the last deliveries in a list, for notebooks and tests.

    Example:
        >>> len(Memory().deliveries)
        0
    """

    name = "memory"
    title = "memory"

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self.deliveries: deque[tuple[Snapshot, tuple[Verdict, ...], tuple[Exhibit, ...]]] = deque(maxlen=capacity)

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Keep one delivery; the oldest goes when the capacity is reached."""
        self.deliveries.append((snapshot, tuple(verdicts), tuple(exhibits)))
