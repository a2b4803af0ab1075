"""The budget: how much of a model's time watching may take, and how it is kept."""

from __future__ import annotations

__all__ = ["Budget"]

TICKS = 50
"""So many steps at least are looked at before the interval changes."""
SLACK = 4
"""The interval shrinks again when less than one part in so many of the budget is spent."""
MOST = 4096
"""The interval grows to so many times what was asked for at most."""


class Budget:
    """Doubles the sampling interval when watching costs more than its share, and halves it when it costs far less.

    Args:
        share: of the rest of the time, 0.01 for one percent.
        every: the interval that was asked for.

    Example:
        >>> budget = Budget(0.01, 10)
        >>> budget.interval(10, ticks=100, ours=0.0, busy=0.0), budget.interval(10, ticks=200, ours=2.0, busy=10.0)
        (10, 20)
    """

    def __init__(self, share: float, every: int) -> None:
        self.share, self.every = share, every
        self.overhead: float | None = None
        """What watching took of the rest of the time, the last time it was looked at."""
        self._ticks, self._ours, self._busy = 0, 0.0, 0.0
        self._began = False

    def interval(self, every: int, *, ticks: int, ours: float, busy: float) -> int:
        """Return the interval to go on with, from totals of steps, of our seconds and of all busy seconds."""
        if self._began and ticks - self._ticks < TICKS:
            return every
        rest = (busy - self._busy) - (ours - self._ours)
        spent = ours - self._ours
        begun, self._began = self._began, True
        self._ticks, self._ours, self._busy = ticks, ours, busy
        if not begun or rest <= 0:
            return every
        self.overhead = spent / rest
        if self.overhead > self.share:
            return min(every * 2, self.every * MOST)
        if self.overhead < self.share / SLACK:
            return max(every // 2, self.every)
        return every
