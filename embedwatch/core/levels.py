"""Where a measurement stood early in a course: what a later value is held against."""

from __future__ import annotations

from statistics import median

from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot

__all__ = ["earlier_values", "early_level"]

FEWEST_WINDOWS = 5
"""Earlier windows that a level needs."""
EARLY = 4
"""One part in so many of the earlier windows is early."""


def earlier_values(
    history: History | None, snapshot: Snapshot, name: str, /, *, since: int = 0, **labels: str
) -> list[float]:
    """Return a measurement in the windows before a Snapshot, from step `since` on; all count where no step is known.

    What a resumed run went over again is left out.
    """
    now = snapshot.provenance.step
    found = []
    for each in history or ():
        step, value = each.provenance.step, each.number(name, **labels)
        is_before = each is not snapshot if now is None or step is None else since <= step < now
        if value is not None and is_before:
            found.append(value)
    return found


def early_level(
    history: History | None, snapshot: Snapshot, name: str, /, *, since: int = 0, **labels: str
) -> float | None:
    """Return the median of the first quarter of the windows before a Snapshot; `None` for fewer than five of them."""
    values = earlier_values(history, snapshot, name, since=since, **labels)
    if len(values) < FEWEST_WINDOWS:
        return None
    return median(values[: max(FEWEST_WINDOWS, len(values) // EARLY)])
