"""The longest row of a table must not run away."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History, Points, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.trend import Trend
from embedwatch.core.verdict import Evidence, Limit

METRIC = "token_norm_extreme_ratio"
LONGEST = 10.0
"""A row of so many medians is what is feared; the statistic counts rows beyond the same number."""
FEWEST_WINDOWS = 5
MOST_POINTS = 100
"""More windows are thinned evenly: a line through a hundred is as good, and costs 5,000 slopes."""
REACH = 3.0
"""A course is not followed beyond so many times its level: what grew a little may stop as well."""
FAR = 100.0
"""Run lengths that stand for never, which JSON cannot say."""
PER = 100
"""Growth is said for so many steps."""


@dataclass(frozen=True, slots=True)
class _Growth:
    """The later half of a course as a trend, straight in the ratio or in its logarithm, and how it was before."""

    line: Trend
    logarithmic: bool
    before: float
    after: float
    span: float

    @classmethod
    def of(cls, course: Points) -> _Growth:
        """Return the straighter of both lines."""
        later = _thinned(_later_half(course))
        straight, curved = Trend.through(later), Trend.through([(step, math.log(ratio)) for step, ratio in later])
        logarithmic = curved.scatter * _power(curved.level) < straight.scatter
        span = course[-1][0] - course[0][0]
        earlier = [point for point in course if point[0] <= course[0][0] + span / 2]
        before = Trend.through(_thinned(earlier)).slope if len(earlier) * 2 >= FEWEST_WINDOWS else 0.0
        return cls(curved if logarithmic else straight, logarithmic, before, straight.slope, span)

    def crossing(self, slope: float | None = None) -> float:
        """Return the step at which the limit is reached, at the trend's slope or another; infinity for never."""
        return self.line.reaches(math.log(LONGEST) if self.logarithmic else LONGEST, slope=slope)

    @property
    def level(self) -> float:
        """The ratio now."""
        return _power(self.line.level) if self.logarithmic else self.line.level

    @property
    def slows_down(self) -> bool:
        """Whether growth that goes on to slow down as it did so far stays below the limit for another run length.

        Where it fell from Δ in the earlier half to q Δ in the later one, the next two halves bring `q² Δ + q³ Δ`
        (Aitken's extrapolation); q = 1 is the straight line.
        """
        q = self.after / self.before if self.before > 0 else 1.0
        return 0 < q < 1 and self.level + self.after * self.span / 2 * (q + q * q) < LONGEST

    def rate(self, slope: float) -> float:
        """Return the growth in `PER` steps, in percent of the ratio now."""
        return 100 * (_power(PER * slope) - 1 if self.logarithmic else PER * slope / self.line.level)

    def words(self) -> str:
        """Return pace, step and interval."""
        early, late = (_about(self.crossing(slope)) for slope in (self.line.high, self.line.low))
        return (
            f"The largest token norm grows {self.rate(self.line.slope):.2g} % per {PER} steps against the median; it "
            f"reaches {LONGEST:g} × the median at step ~{_about(self.crossing())} (90 %: {early}-{late})"
        )


class TokenNormGrowth(Check):
    """The longest row of the table does not grow towards ten times the median row.

    A straight line, in the ratio or in its logarithm, whichever fits better, goes through the later half of the course.
    Judged is how far off its crossing lies, in lengths of the course so far: one that is nearer than one more such
    length warns, unless growth slows down enough to stay below, or has come to less than a third of the limit. Where
    the slope is not above zero with 95 % confidence, the course is too unsteady to tell. Beyond the limit it fails.

    References: Sen 1968, "Estimates of the regression coefficient based on Kendall's tau" (slope and interval).
    """

    name = "token_norm_growth"
    title = "runaway token norm"
    reads = (METRIC,)
    roles = ("tokens",)
    limit = Limit(warn=1.0, fail=0.0, side="below")
    exhibits = ("largest_tokens",)
    meaning = "Rows of the embedding table grow much faster than the others."
    impact = (
        "A row ten times as long as the median wins every dot product with a tied output, saturates softmaxes, and "
        "leaves no digits to the others in half precision; training then stalls or diverges."
    )
    diagnosis = (
        "Look at the tokens in the exhibit: are they the most frequent ones, is the table under weight decay, is its "
        "learning rate higher than that of the rest?"
    )
    mitigation = (
        "Put the embedding table under weight decay, lower its learning rate, use Adam where plain SGD was used, or "
        "normalise what the table puts out."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the run lengths until the crossing, with step and interval in the reason."""
        del reference
        ratio = snapshot.number(METRIC)
        if ratio is None or ratio <= 0:
            return self._evidence(snapshot, None, "Not enough data for a value.")
        now = f"The largest token norm is {ratio:.3g} × the median"
        if ratio >= LONGEST:
            return self._evidence(snapshot, 0.0, f"{now}{_decay(snapshot)}.")
        course = [point for point in course_of(METRIC, snapshot, history) if point[1] > 0]
        if len(course) < FEWEST_WINDOWS:
            few = f"{len(course)} windows with a step are too few for a trend, needs {FEWEST_WINDOWS}."
            return self._evidence(snapshot, None, few)
        return self._judge(snapshot, _Growth.of(course), now)

    def _judge(self, snapshot: Snapshot, growth: _Growth, now: str) -> Evidence:
        """Return how far off the crossing is; no value where it seems near and the slope may be none."""
        left = min(FAR, (growth.crossing() - growth.line.last) / growth.span)
        if growth.line.slope <= 0:
            return self._evidence(snapshot, left, f"{now}, and does not grow.")
        if left > 1.0:
            return self._evidence(snapshot, left, f"{growth.words()}.")
        if growth.level * REACH < LONGEST:
            return self._harmless(snapshot, left, f"{now}, and grew too little for a forecast.")
        if growth.slows_down:
            return self._harmless(snapshot, left, f"{now}, and its growth slows down.")
        if growth.line.low <= 0:
            low, high = growth.rate(growth.line.low), growth.rate(growth.line.high)
            unsteady = f"grows between {low:.2g} and {high:.2g} % per {PER} steps (90 %): too unsteady for a forecast."
            return self._evidence(snapshot, None, f"{now}, and {unsteady}")
        return self._evidence(snapshot, left, f"{growth.words()}{_decay(snapshot)}.")

    def _evidence(self, snapshot: Snapshot, left: float | None, reason: str) -> Evidence:
        rows = snapshot.provenance.rows
        return Evidence(left, self.limit, rows, reason, METRIC, "run lengths", exhibits=self.exhibits)

    def _harmless(self, snapshot: Snapshot, left: float, reason: str) -> Evidence:
        """Return evidence without a limit: the straight line is near it, and says nothing here."""
        return replace(self._evidence(snapshot, left, reason), limit=None)


def _later_half(course: Points) -> Points:
    """Return the windows of the later half of the steps, or the last few where these are fewer than a trend needs."""
    middle = (course[0][0] + course[-1][0]) / 2
    later = [point for point in course if point[0] >= middle]
    return later if len(later) >= FEWEST_WINDOWS else course[-FEWEST_WINDOWS:]


def _thinned(course: Points) -> Points:
    """Return at most `MOST_POINTS` of the points, the last among them."""
    stride = -(-len(course) // MOST_POINTS)
    return course[::-1][::stride][::-1]


def _decay(snapshot: Snapshot) -> str:
    decay = snapshot.number("token_table_weight_decay")
    return "" if decay is None else f"; weight decay is {decay:g} for this table"


def _power(exponent: float) -> float:
    """Return e to a power, the largest number there is where that is beyond it."""
    return math.exp(min(exponent, math.log(sys.float_info.max)))


def _about(step: float) -> str:
    """Return a step in two significant digits: a forecast knows no more."""
    return "never" if math.isinf(step) else f"{float(f'{step:.2g}'):,.0f}"
