"""Logits of attention must not run away."""

from __future__ import annotations

import math
from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.trend import Trend
from embedwatch.core.verdict import Evidence, Limit

METRIC = "attention_logit_max"
DIVERGES = 1e4
"""Models whose logits exceed this diverge (Wortsman et al. 2023); float16 ends at 65,504."""
LARGE = 1e3
"""Warns in any case."""
GROWN = 1e2
"""Warns where logits grow fast: three trained models have up to 69, unscaled ones of T5 up to 130."""
FEWEST_WINDOWS = 5
MOST_POINTS = 100
"""More windows are thinned evenly."""


class AttentionLogitGrowth(Check):
    """The largest logit of a layer's attention does not grow towards 10,000.

    It fails at 10,000 and warns at 1,000. From 100 on it warns where a line through the logarithms of the later half of
    the course rises with 95 % confidence and reaches 10,000 within one more length of the course. The logit is the
    largest of the sampled rows: that of all rows is no smaller.

    References: Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities"
    (arXiv 2309.14322, section 3.1 and 3.4); Dehghani et al. 2023, "Scaling vision Transformers to 22 billion
    parameters" (arXiv 2302.05442, section 2).
    """

    name = "attention_logit_growth"
    title = "runaway attention logits"
    reads = (METRIC,)
    roles = ("attention",)
    limit = Limit(warn=LARGE, fail=DIVERGES)
    exhibits = ("attention_entropy",)
    severity = "critical"
    meaning = "Products of queries and keys are huge, or on the way there."
    impact = (
        "The softmax saturates, its gradient vanishes, and training diverges soon after; in float16 the logits become "
        "infinite, and the loss NaN."
    )
    diagnosis = (
        "Which layer was first? Do the norms of queries and keys grow, is their weight under weight decay, is the "
        "learning rate high for the model's width? A missing division by √d_k makes logits √d_k times as large from "
        "the first step on."
    )
    mitigation = (
        "Normalise queries and keys (QK-norm), clip their weights (QK-clip) or cap logits; lower the learning rate, "
        "lengthen the warm-up; go back to a checkpoint before the growth."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the largest logit beside the limit, a lower one where it grows fast."""
        del reference
        value, rows = snapshot.number(METRIC, heads="max"), snapshot.provenance.rows
        if value is None:
            return Evidence(None, self.limit, rows, "Not enough data for a value.", METRIC)
        now = f"The largest logit is {value:.3g}"
        crossing = _crossing(snapshot, history) if GROWN <= value < LARGE else None
        if crossing is None:
            return Evidence(value, self.limit, rows, f"{now}.", METRIC, exhibits=self.exhibits)
        grows = f"{now} and grows; it reaches {DIVERGES:,.0f} at step ~{crossing:,.0f}."
        limit = Limit(warn=GROWN, fail=DIVERGES)
        return Evidence(value, limit, rows, grows, METRIC, exhibits=self.exhibits)


def _crossing(snapshot: Snapshot, history: History | None) -> float | None:
    """Return the step at which the limit is reached, if within one more length of the course; `None` if not."""
    course = _course(snapshot, history)
    if len(course) < FEWEST_WINDOWS:
        return None
    span, middle = course[-1][0] - course[0][0], (course[0][0] + course[-1][0]) / 2
    later = [point for point in course if point[0] >= middle]
    later = later if len(later) >= FEWEST_WINDOWS else course[-FEWEST_WINDOWS:]
    stride = -(-len(later) // MOST_POINTS)
    line = Trend.through([(step, math.log(value)) for step, value in later[::-1][::stride][::-1]])
    crossing = line.reaches(math.log(DIVERGES))
    return crossing if line.low > 0 and crossing <= line.last + span else None


def _course(snapshot: Snapshot, history: History | None) -> list[tuple[float, float]]:
    """Return steps and positive logits up to this window; what a resumed run went over again counts as it was last."""
    course: list[tuple[float, float]] = []
    for each in (*(history or ()), snapshot):
        step, value = each.provenance.step, each.number(METRIC, heads="max")
        if step is not None and value is not None and value > 0:
            while course and course[-1][0] >= step:
                course.pop()
            course.append((float(step), value))
    return course
