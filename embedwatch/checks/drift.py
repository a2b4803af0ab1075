"""Rows should be like those of the reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from embedwatch.calibration import (
    MOST_WINDOWS,
    USUAL_BUDGET,
    Budget,
    Plan,
    accumulate,
    e_value,
    evaluations_per_day,
    plan,
    windows_together,
)
from embedwatch.core.check import LEAST_DISTINCT, Check
from embedwatch.core.errors import UsageError
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

P_VALUE, FAMILY = "drift_p_value", "drift_family_p_value"
LEVEL = 0.01
"""Share of healthy windows that may be called different."""
LEAST_QUOTIENT = 1e-9
COARSEST = 5e-4
"""The smallest p-value that each family of sums can give: at a finer level no single window decides."""
USUAL_RATIO = 0.5
"""Share of a window in window and reference, where blocks were not counted."""
ONE_LOOK, MANY_LOOKS = "permutation of blocks of rows, one look", "p-values of permutations, accumulated over windows"


class Size(NamedTuple):
    """A size of change that counts: no change, from where it warns and fails, and how it is told."""

    metric: str
    none: float
    warn: float
    fail: float
    words: str


SIZES = (
    Size("drift_foreign_ratio", 0, 0.01, 0.1, "{:.1%} of the rows or more are foreign"),
    Size("drift_centroid_ratio", 0, 0.05, 0.25, "the mean moved by {:.2g} standard deviations"),
    Size("drift_variance_ratio", 1, 0.05, 0.25, "the variance is {:.3g} times what it was"),
    Size("drift_rank_ratio", 1, 0.05, 0.25, "the effective rank is {:.3g} times what it was"),
    Size("drift_norm_ratio", 1, 0.01, 0.05, "norms are {:.3g} times what they were"),
)


class Effect(NamedTuple):
    """A size that was measured: the number itself, and how many times the least that counts it is."""

    size: Size
    number: float
    times: float

    def beyond(self, amount: float) -> float:
        """Return the number at which the change is so large, on the side where this one lies."""
        if self.size.none == 0:
            return amount
        return 1 + amount if self.number >= 1 else 1 / (1 + amount)


class Looks(NamedTuple):
    """What many looks come to.

    Args:
        plan: how many windows speak together, and up to which threshold; `None` where none is reachable.
        level: at which one window decides alone; `None` where none may.
        evidence: of the windows.
        windows: how many of them speak for a change.
        budget: what is accepted, in words.
        p_values: of the windows that speak together, oldest first.
    """

    plan: Plan | None
    level: float | None
    evidence: float
    windows: int
    budget: str
    p_values: list[float]


class Drift(Check):
    """Rows do not differ from those of the reference by more than chance, or not by enough to matter.

    It needs both: sureness, and a change that is large enough. It warns from 1 % foreign rows on, or where the mean
    moved by 0.05 standard deviations, variance or rank by 5 %, norms by 1 %; it fails at 10 % foreign rows, 0.25
    standard deviations, 25 % and 5 %. With too few independent rows it is `unknown`, and says how many are needed.

    A single comparison is sure with a p-value at or below the level. Over time, beside a History, every window is one
    more chance to be wrong: there the budget decides. The p-values of the newest disjoint windows become e-values that
    are accumulated; sizes are then the medians of the windows that speak for a change. Where windows are so rare that
    the level fits into half of the budget, a single one decides as well.

    Args:
        level: share of healthy windows that may be called different in a single comparison; never exceeded over time.
        budget: false alarms that are accepted over time, like "1 per 30d".
        evaluations_per_day: windows of a day; by default measured from the times of the newest ones.
        spaces: how many Spaces share the budget, or what tells how many do now.
    """

    name = "drift"
    title = "drift from the reference"
    reads = (P_VALUE, *(size.metric for size in SIZES))
    weighs = (FAMILY, "drift_rows", "drift_rows_needed", "drift_decay_length", "drift_blocks", "drift_distinct_rows")
    limit = Limit(warn=LEVEL, fail=LEVEL, side="below")
    exhibits = ("foreign_rows", "crowded_rows", "cells_gained", "cells_lost")
    meaning = "Rows are not what they were: other content, another mixture, or another way from input to vectors."
    impact = (
        "Thresholds, clusters and classifiers that were made on the reference no longer fit; old and new vectors may "
        "not compare."
    )
    diagnosis = (
        "Which family differs? Content: read the most foreign rows. Shift alone: another mixture of the same topics; "
        "see which cells gained and lost. Geometry, or all at once: another model, pooling, prefix, precision or "
        "normalisation."
    )
    mitigation = (
        "If the input changed and should have, take a new reference; if not, stop what sends it. If the model or its "
        "settings changed, restore them or encode the old rows again."
    )

    def __init__(
        self,
        *,
        level: float = LEVEL,
        budget: str | Budget = USUAL_BUDGET,
        evaluations_per_day: float | None = None,
        spaces: int | Callable[[], int] = 1,
    ) -> None:
        if not 0 < level < 1:
            raise UsageError(f"`level` must be above 0 and below 1, got {level!r}; 0.01 is usual")
        if evaluations_per_day is not None and not 0 < evaluations_per_day < math.inf:
            raise UsageError(
                f"`evaluations_per_day` must be above 0, got {evaluations_per_day!r}; leave it out to have it measured"
            )
        if not callable(spaces) and spaces < 1:
            raise UsageError(f"`spaces` must be 1 or more, got {spaces!r}; count what shares the budget")
        self.level, self.spaces, self.per_day = level, spaces, evaluations_per_day
        self.budget = budget if isinstance(budget, Budget) else Budget.parse(budget)

    @classmethod
    def over_time(cls, *, alarms: str, spaces: Callable[[], int]) -> Drift:
        """Return it with a budget that the Spaces share which are compared with a reference."""
        return cls(budget=alarms, spaces=spaces)

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return how sure the difference is, beside its limit, which is there where it is large enough to matter.

        Without a History that is the p-value beside the level; with one, the evidence of the newest windows beside its
        threshold.
        """
        del reference
        p_value, rows = _probability(snapshot), _whole(snapshot, "drift_rows", snapshot.provenance.rows)
        known = self._known(snapshot, rows)
        effects = _effects([snapshot])
        level = Limit(warn=self.level, side="below")
        if p_value is None or not effects:
            return Evidence(None, level, rows, _too_few(snapshot, rows), P_VALUE, **known)
        known |= {"p_value": p_value, "e_value": e_value(p_value), "level": self.level}
        if history is None:
            one = Evidence(p_value, level, rows, measurement=P_VALUE, test=ONE_LOOK, **known)
            return self._weighed(snapshot, one, effects, f"p = {p_value:.2g}")
        windows = windows_together(snapshot, history, P_VALUE)
        looks = self._looks(windows, [each.provenance.time for each in (*history.recent(), snapshot)])
        known |= {"level": looks.level, "budget": looks.budget}
        if looks.level is not None and p_value <= looks.level:
            one = Evidence(p_value, Limit(warn=looks.level, side="below"), rows, test=ONE_LOOK, **known)
            return self._weighed(snapshot, replace(one, measurement=P_VALUE), effects, f"p = {p_value:.2g}")
        if looks.plan is None:
            return Evidence(None, level, rows, _too_short(snapshot, looks), P_VALUE, test=MANY_LOOKS, **known)
        known |= {"e_value": looks.evidence, "windows": looks.windows}
        many = Evidence(looks.evidence, Limit(warn=looks.plan.threshold), rows, test=MANY_LOOKS, **known)
        told = f"evidence {looks.evidence:.2g} of {looks.plan.threshold:.2g} in {_windows(looks.windows)}"
        told += f", p = {p_value:.2g}"
        if (more := _more(looks.p_values, looks.plan)) is not None:
            told += f"; {_windows(more)} more like it would be sure"
        elif p_value <= self.level and looks.evidence < looks.plan.threshold:
            told += "; beside so short a reference no number of windows like it would be sure"
        return self._weighed(snapshot, many, _effects(windows[-looks.windows :]), told)

    def _known(self, snapshot: Snapshot, rows: int) -> dict[str, Any]:
        """Return what Evidence holds in any case."""
        length, needed = snapshot.number("drift_decay_length"), snapshot.number("drift_rows_needed")
        return {
            "effective_rows": None if length is None else rows / max(1.0, length),
            "rows_needed": needed if needed is not None and rows < needed else None,
        }

    def _looks(self, windows: Sequence[Snapshot], times: Sequence[float]) -> Looks:
        """Return what windows that speak together come to beside the budget; all times count, also of other windows."""
        per_day = self.per_day or evaluations_per_day(times)
        shared = max(1, self.spaces()) if callable(self.spaces) else self.spaces
        evaluations = max(1.0, self.budget.evaluations(per_day, shared))
        alone = min(self.level, 1 / (2 * evaluations))
        level = alone if alone >= COARSEST else None
        # never more often than the level allows; half of the budget goes to windows that decide alone
        accepted = max(1 / self.level, evaluations if level is None else 2 * evaluations)
        found = plan(max(map(_ratio, windows)), accepted)
        together = windows[-(MOST_WINDOWS if found is None else found.windows) :]
        p_values = [number for each in together if (number := _probability(each)) is not None]
        total = accumulate(p_values, accepted if found is None else found.threshold)
        spaces = "" if shared == 1 else f" over {shared:,} spaces"
        words = f"{self.budget}{spaces} at {per_day:,.4g} evaluations a day"
        return Looks(found, level, total.evidence, total.windows, words, p_values)

    def _weighed(self, snapshot: Snapshot, found: Evidence, effects: Sequence[Effect], told: str) -> Evidence:
        """Return evidence with its effect: no limit where that is small, and one that fails where it is grave."""
        largest, limit = effects[0], found.limit
        found = replace(
            found,
            effect=largest.number,
            effect_name=largest.size.metric,
            effect_limit=largest.beyond(largest.size.warn),
            effect_fail=largest.beyond(largest.size.fail),
        )
        if limit is None or found.value is None or limit.status(found.value) == "ok":
            return replace(found, reason=f"Chance explains the difference ({told}).")
        if largest.times < 1:
            return replace(found, limit=None, reason=f"Surely different ({told}), and by less than matters.")
        sizes = "; ".join(each.size.words.format(each.number) for each in effects if each.times >= 1)
        reason = f"Rows differ ({told}{_families(snapshot, self.level)}): {sizes}."
        if any(each.times * each.size.warn >= each.size.fail for each in effects):
            limit = Limit(fail=limit.warn, side=limit.side)
        return replace(found, limit=limit, reason=reason, exhibits=self.exhibits)


def _effects(windows: Sequence[Snapshot]) -> list[Effect]:
    """Return the sizes that have a value, each the median of some windows, the largest first."""
    found = []
    for size in SIZES:
        numbers = [number for each in windows if (number := each.number(size.metric)) is not None]
        if numbers:
            number = median(numbers)
            found.append(Effect(size, number, _amount(size, number) / size.warn))
    return sorted(found, key=lambda effect: -effect.times)


def _amount(size: Size, number: float) -> float:
    if size.none == 0:
        return max(0.0, number)
    return max(number, 1 / number) - 1 if number >= LEAST_QUOTIENT else math.inf


def _windows(count: int) -> str:
    return f"{count} window" if count == 1 else f"{count} windows"


def _more(p_values: list[float], by: Plan) -> int | None:
    """Return how many more windows like the last would reach the threshold; `None` where none are needed or do."""
    for count in range(by.windows + 1):
        together = [*p_values, *p_values[-1:] * count][-by.windows :]
        if accumulate(together, by.threshold).evidence >= by.threshold:
            return count or None
    return None


def _ratio(snapshot: Snapshot) -> float:
    """Return the share of a window in window and reference, in blocks: what p-values of windows have in common."""
    here, there = (snapshot.number("drift_blocks", side=side) for side in ("window", "reference"))
    return USUAL_RATIO if not here or not there else here / (here + there)


def _too_short(snapshot: Snapshot, looks: Looks) -> str:
    """Return the sentence that says that no evidence would ever suffice."""
    needed = snapshot.number("drift_rows_needed")
    rows = "" if needed is None else f" The window has enough with {needed:,.0f} rows."
    return (
        f"The reference is too short beside so long a window for {looks.budget}: its own sampling error weighs more "
        f"than any number of windows. Take one with at least three times the rows.{rows}"
    )


def _probability(snapshot: Snapshot) -> float | None:
    """Return the p-value, if it is one."""
    number = snapshot.number(P_VALUE)
    return number if number is not None and 0 <= number <= 1 else None


def _whole(snapshot: Snapshot, name: str, otherwise: int) -> int:
    number = snapshot.number(name)
    return otherwise if number is None else int(number)


def _families(snapshot: Snapshot, level: float) -> str:
    """Return the families that differ at the level by themselves, to stand behind the p-value."""
    families = [each for each in snapshot if each.name == FAMILY and each.number is not None]
    found = [each.labels.get("family", "") for each in families if (each.number or 0) <= level]
    return f"; {', '.join(found)}" if found else ""


def _too_few(snapshot: Snapshot, rows: int) -> str:
    """Return the sentence that says which side is too short, and how many rows are needed."""
    needed, length = snapshot.number("drift_rows_needed"), snapshot.number("drift_decay_length")
    if needed is None:
        return (
            f"None of {snapshot.provenance.rows:,} rows could be compared: each holds NaN or Inf, has no number, or "
            "equals one on which the reference was fitted."
        )
    different = snapshot.number("drift_distinct_rows")
    if different is not None and different < LEAST_DISTINCT:
        alike = "all the same" if different == 1 else f"{different:.0f} different ones"
        return (
            f"Of {rows:,} rows those that were sampled are {alike}, needs {LEAST_DISTINCT}: one input came again "
            "and again, or one vector stands for many, which `embedwatch audit` judges."
        )
    why = f", since {length:.3g} rows in a row are about one thing" if length is not None and length > 1 else ""
    before, now = (snapshot.number("drift_blocks", side=side) for side in ("reference", "window"))
    if before is not None and now is not None and before < now:
        return f"The reference is too short{why}: it needs {2 * needed:,.0f} rows that do not repeat."
    return f"{rows:,} rows are too few{why}: each side needs {needed:,.0f}, the reference twice as many."
