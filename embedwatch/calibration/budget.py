"""Budget: how many false alarms somebody accepts in which time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from embedwatch.core.errors import UsageError

__all__ = ["USUAL_BUDGET", "USUAL_PER_DAY", "Budget", "evaluations_per_day"]

DAYS = {"m": 1 / 1_440, "h": 1 / 24, "d": 1.0, "w": 7.0}
"""Days in a unit of time."""
USUAL_BUDGET = "1 per 30d"
USUAL_PER_DAY = 1_440.0
"""One evaluation a minute: taken where no rate is known yet."""
SECONDS = 86_400.0
LONGEST = 60
"""Characters of a wrong text that an error repeats."""
WORDS = re.compile(r"(\d+(?:\.\d+)?) +per +(\d+(?:\.\d+)?)([mhdw])")


@dataclass(frozen=True, slots=True)
class Budget:
    """So many false alarms in so many days, over all Spaces together.

    Args:
        alarms: how many.
        days: in which time.

    Example:
        >>> Budget.parse("1 per 30d").evaluations(per_day=1_440)
        43200.0
        >>> str(Budget.parse("2 per 4w"))
        '2 per 28d'
    """

    alarms: float
    days: float

    def __post_init__(self) -> None:
        for name in ("alarms", "days"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"`{name}` must be above 0, got {getattr(self, name)!r}; 1 per 30d is usual")

    def __str__(self) -> str:
        return f"{self.alarms:g} per {self.days:g}d"

    @classmethod
    def parse(cls, text: str, *, name: str = "budget") -> Budget:
        """Read `NUMBER per DURATION`, the duration a number with m, h, d or w.

        Args:
            text: what was written.
            name: what people call it, for the error.

        Raises:
            UsageError: if it is not that.
        """
        found = WORDS.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None or not float(found[1]) or not float(found[2]):
            got = repr(text)
            got = got if len(got) <= LONGEST else f"{got[: LONGEST - 4]}...{got[-1]}"
            raise UsageError(
                f"`{name}` must be a number of false alarms and a duration in m, h, d or w, got {got}; write 1 per 30d"
            )
        return cls(float(found[1]), float(found[2]) * DAYS[found[3]])

    def evaluations(self, per_day: float, spaces: int = 1) -> float:
        """Return in how many evaluations of one Space one false alarm is accepted, `s r d / a`.

        A budget for s Spaces is divided among them (Bonferroni): alarms of Spaces add up whatever their dependence. An
        average of their e-values (Vovk & Wang 2021, https://arxiv.org/abs/1912.06116) would answer
        whether any Space changed, and not which. The price is small, since evidence multiplies: 100 Spaces cost
        `ln 100 / ln 68.8`, about one window.

        Args:
            per_day: r, evaluations a day.
            spaces: s, how many Spaces share the budget.
        """
        if not 0 < per_day < math.inf:
            raise UsageError(f"`per_day` must be above 0, got {per_day!r}; count the windows of a day")
        if spaces < 1:
            raise UsageError(f"`spaces` must be 1 or more, got {spaces!r}; count what shares the budget")
        return spaces * per_day * self.days / self.alarms


def evaluations_per_day(times: Sequence[float]) -> float:
    """Return how many windows a day close, from the times of some in a row; one a minute where they do not tell.

    Example:
        >>> evaluations_per_day([0, 3_600, 7_200])
        24.0
        >>> evaluations_per_day([5.0])
        1440.0
    """
    span = max(times, default=0.0) - min(times, default=0.0)
    return (len(times) - 1) * SECONDS / span if len(times) > 1 and span > 0 else USUAL_PER_DAY
