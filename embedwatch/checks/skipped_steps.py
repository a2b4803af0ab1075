"""Most steps must be taken."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

SKIPPED, STEPS = "skipped_steps_total", "steps_total"
WINDOWS = 3
LEAST_STEPS = 20
SETTLED = 20
"""A scaler of gradients finds its scale within so many steps of the run, and skips most of them."""


class SkippedSteps(CourseCheck):
    """Few steps are skipped because their gradient is not finite.

    Judged is the share over the last three windows. A scaler of float16 gradients skips one step in 2,000, where it
    tries a larger scale, and many of the first 20, which are left out: a tenth is far beyond that.

    References: Micikevicius et al. 2018, "Mixed precision training", https://arxiv.org/abs/1710.03740
    """

    name = "skipped_steps"
    title = "steps that were skipped"
    metric = SKIPPED
    reads = (SKIPPED, STEPS)
    limit = Limit(warn=0.1, fail=0.5)
    meaning = "Steps are skipped, since their gradient is NaN or infinite."
    impact = "Nothing is learned from them; where the scale falls with each, gradients soon round to zero."
    diagnosis = (
        "Does the scale of the scaler fall for ever? Then some gradient is never finite: look for the first place "
        "whose vectors are not, for logits beyond 65,504, a mask of -Inf over a whole row, a division by zero."
    )
    mitigation = "Use bfloat16, or keep softmax, norms and the loss in float32; clip after unscaling; lower the rate."

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of the steps that were skipped lately."""
        del reference
        steps, skipped = course_of(STEPS, snapshot, history), dict(course_of(SKIPPED, snapshot, history))
        settled = [window for before, window in pairwise(steps) if before[0] >= SETTLED][-WINDOWS:]
        number = sum(count for _, count in settled)
        if number < LEAST_STEPS:
            return self.too_few(snapshot, round(number), LEAST_STEPS, "steps after the start")
        share = sum(skipped.get(step, 0.0) for step, _ in settled) / number
        return self.found(snapshot, share, f"{share:.1%} of the last {number:,.0f} steps were skipped.")
