"""Clipping is for odd batches, not for each step."""

from __future__ import annotations

from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

SHARE, EXCESS, LIMIT = "clipped_steps_ratio", "gradient_excess_ratio", "gradient_norm_limit"
ALWAYS = 0.95
"""So many steps clipped are as good as all."""
WINDOWS = 3
"""In so many windows in a row: gradients are large at the start."""


class Clipping(CourseCheck):
    """Gradients are not cut to a small part of themselves at each step.

    Judged is how many times the norm of the gradient exceeds its limit, where 95 % of the steps of each of three
    windows are clipped: the smallest of the three. Small models are clipped at most steps and by less than four times;
    that is healthy. What is never clipped is no fault.

    References: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
    https://arxiv.org/abs/1211.5063
    """

    name = "clipping"
    title = "gradient over its limit"
    metric = EXCESS
    weighs = (SHARE, LIMIT)
    limit = Limit(warn=10)
    meaning = "Each step is clipped, to a tenth of its gradient or less: the limit is far too low."
    impact = (
        "Steps all have the same length, so that an odd batch counts as much as a usual one, and small gradients are "
        "not told from large ones. With plain SGD the learning rate is that many times smaller than it says; Adam "
        "hides it."
    )
    diagnosis = (
        "Is the limit meant for another scale: a loss that is summed and not averaged, gradients of float16 that are "
        "clipped before they are unscaled, a limit for each entry in place of the norm?"
    )
    mitigation = (
        "Set the limit to two or three times the usual norm of the gradient, after warm-up; unscale before clipping; "
        "average the loss."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return by how much the gradient exceeds the limit, where all steps are clipped."""
        del reference
        excess, share = course_of(EXCESS, snapshot, history), course_of(SHARE, snapshot, history)
        if len(excess) < WINDOWS:
            return self.too_few(snapshot, len(excess), WINDOWS)
        lately = dict(excess[-WINDOWS:])
        clipped = [part for step, part in share if step in lately]
        least, now = min(lately.values()), (clipped or [0.0])[-1]
        said = f"{now:.0%} of the steps are clipped; the gradient is {excess[-1][1]:.3g} times its limit"
        if not now:
            return self.harmless(
                snapshot, least, f"No step is clipped: the gradient is {excess[-1][1]:.3g} of its limit."
            )
        if min(clipped) < ALWAYS:
            return self.harmless(snapshot, least, f"{said}.")
        return self.found(snapshot, least, f"{said}.")
