"""The budget: how much of a model's time watching may take, and how it is kept."""

from __future__ import annotations

import math

__all__ = ["Budget"]

SLACK = 4
"""It is watched more closely again when less than one part in so many of the budget is spent."""
MOST_STRETCH = 4096
"""Intervals grow to so many times what was asked for at most."""
MOST_WINDOW = 8
"""Windows grow to so many times what was asked for at most: findings must not come too late."""
CREDIT = 0.1
"""Seconds that serving may spend before it has earned them."""
AIM = 0.5
"""Part of its share that serving spends on looking: windows cost in bursts, and on a busy machine the clock shows more
time for the model than it had."""


class Budget:
    """Watches less often where watching costs more than its share: intervals and windows stretch by powers of two.

    The cost of one window decides how the next ones are watched; what the start costs, once, does not count.

    Args:
        share: of the rest of the time, 0.01 for one percent; `None` for no limit.

    Example:
        >>> budget = Budget(0.01)
        >>> budget.window_over(ours=0.1, busy=0.2)  # the start
        >>> budget.window_over(ours=0.4, busy=10.5)
        >>> round(budget.overhead, 3), budget.stretch
        (0.03, 4)
    """

    def __init__(self, share: float | None) -> None:
        self.share = share
        self.stretch = 1
        """How many times longer intervals are than was asked for."""
        self.overhead: float | None = None
        """What watching took of the rest of the time, in the last window."""
        self._ours, self._busy = 0.0, 0.0
        self._started = False

    @property
    def window_stretch(self) -> int:
        """How many times longer windows are than was asked for."""
        return min(self.stretch, MOST_WINDOW)

    def window_over(self, *, ours: float, busy: float) -> None:
        """Settle the stretch, from totals of our seconds and of all busy seconds so far."""
        spent, rest = ours - self._ours, (busy - self._busy) - (ours - self._ours)
        self._ours, self._busy = ours, busy
        started, self._started = self._started, True
        if rest <= 0 or not started:
            return
        self.overhead = spent / rest
        if self.share is None:
            return
        if self.overhead > self.share:
            doublings = math.ceil(math.log2(self.overhead / self.share))
            self.stretch = min(self.stretch * 2**doublings, MOST_STRETCH)
        elif self.overhead < self.share / SLACK:
            self.stretch = max(self.stretch // 2, 1)

    def affordable_at(self, ours: float) -> float:
        """Return how long a model that serves must have been busy in all before more may be spent.

        Example:
            >>> Budget(0.01).affordable_at(0.2)
            20.2
        """
        return 0.0 if self.share is None else ours + max(0.0, ours - CREDIT) / (AIM * self.share)
