"""The loss must not jump up and stay there."""

from __future__ import annotations

from statistics import median
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LOSS, RISE, NOISE = "loss_mean", "loss_spike_ratio", "loss_noise"
BEFORE = 3
"""A window is compared with the median of so many before it."""
SCORE = 6.0
"""A window is higher if it is by so many standard deviations of the noise of single steps: far more than its mean
needs, since windows differ by what they are fed."""


class LossSpike(CourseCheck):
    """The loss holds no rise that lasts some steps and is large beside it.

    Judged is the larger of two: the largest rise within the window that stands out from its noise, and how much higher
    the window is than the three before it. A single odd batch is neither.

    References: Takase et al. 2023, "Spike No More: stabilizing the pre-training of large language models",
    https://arxiv.org/abs/2312.16903; Chowdhery et al. 2022, "PaLM", section 5.1 (going back and skipping batches).
    """

    name = "loss_spike"
    title = "rise of the loss"
    metric = LOSS
    weighs = (RISE, NOISE)
    limit = Limit(warn=0.1, fail=0.5)
    exhibits = ("loss_course",)
    meaning = "The loss has jumped up and has stayed there for several steps."
    impact = (
        "What was learned is lost in part. Mostly it comes back after some hundred steps; sometimes never, and the run "
        "goes on as a worse one."
    )
    diagnosis = (
        "Look at the norm of the gradient and at the embedding table just before: short rows of the table make large "
        "gradients. Is the batch odd, does the rate jump there, was the run resumed without the optimizer's moments?"
    )
    mitigation = (
        "Go back to a checkpoint some hundred steps before, and skip the batches around it. Against the next: lower "
        "the rate or lengthen the warm-up, clip gradients, lower Adam's β₂ to 0.95, scale the output of the embedding "
        "by √D."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the largest rise over the loss before it."""
        del reference
        within = snapshot.number(RISE)
        since, before = self._since_before(snapshot, history)
        if within is None and since is None:
            return self.too_few(snapshot, len(course_of(LOSS, snapshot, history)), BEFORE + 1)
        if (since or 0.0) > (within or 0.0):
            return self.found(snapshot, since or 0.0, f"The loss has risen by {since:.0%} from {before:.3g}.")
        if within:
            return self.found(snapshot, within, f"The loss has risen by {within:.0%} within the window.")
        return self.found(snapshot, 0.0, "No rise stands out from the noise of the loss.")

    def _since_before(self, snapshot: Snapshot, history: History | None) -> tuple[float | None, float]:
        """Return how much higher the window is than those before, over these, and these; 0 where noise may do that."""
        *earlier, (_, now) = course_of(LOSS, snapshot, history) or [(0.0, 0.0)]
        if len(earlier) < BEFORE:
            return None, 0.0
        before = median(loss for _, loss in earlier[-BEFORE:])
        if before <= 0:
            return None, before
        by = now - before
        noises = course_of(NOISE, snapshot, history)
        usual = median(noise for _, noise in noises) if noises else 0.0
        return (by / before if by > SCORE * usual else 0.0), before
