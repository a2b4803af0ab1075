"""The fault of the demo: the vector of one frequent token grows, step by step, and is scaled back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Act", "PumpedToken"]

GROWTH, MOST = 1.05, 120.0
"""Growth of the row in a step, and times the median row at which it stops."""
QUIET, ILL = 60.0, 60.0
"""Seconds of health before each fault, and of the fault, where the demo has no end."""
SHARES = (0.3, 0.65)
"""Where it has one: shares of the time at which the fault comes and goes."""


class PumpedToken:
    """One row of a table of tokens, that can be blown up and scaled back.

    Args:
        table: (V, D).
        token: the row.
    """

    def __init__(self, table: Tensor, token: int) -> None:
        self._table, self.token = table, token
        self._sound = 1.0

    def remember(self) -> None:
        """Keep the norm that the row has in health."""
        self._sound = float(self._table[self.token].detach().norm())

    def grow(self) -> None:
        """Blow the row up a little."""
        norms = self._table.detach().norm(dim=1)
        if norms[self.token] < MOST * norms.median():
            self._table.detach()[self.token] *= GROWTH

    def heal(self) -> None:
        """Scale the row back to the norm that it had."""
        rows = self._table.detach()
        rows[self.token] *= self._sound / rows[self.token].norm()


class Act:
    """When the fault comes and when it goes.

    Args:
        seconds: until the end; `None` for none: then the fault comes again and again.
        tell: says what is done.
        clock: seconds that never jump.
    """

    def __init__(
        self, seconds: float | None, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._tell, self._clock = seconds, tell, clock
        self._began: float | None = None
        self._ill = False
        self.faults = 0
        """How often the fault came."""

    @property
    def _time(self) -> float:
        if self._began is None:
            self._began = self._clock()
        return self._clock() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._seconds is not None and self._time >= self._seconds

    def is_due(self) -> bool:
        """Return whether the model should be ill now."""
        if self._seconds is not None:
            return SHARES[0] <= self._time / self._seconds < SHARES[1]
        return self._time % (QUIET + ILL) >= QUIET

    def play(self, pumped: PumpedToken) -> None:
        """Do what it is time for, once a step."""
        due = self.is_due()
        if due and not self._ill:
            pumped.remember()
            self.faults += 1
            self._tell(f"fault: from now on the vector of token {pumped.token} grows by 5 % a step")
        if self._ill and not due:
            pumped.heal()
            self._tell("healed: the vector is scaled back, as `embedwatch.renormalize_tokens` does")
        self._ill = due
        if due:
            pumped.grow()
