"""What is held out must not get worse while the training gets better."""

from __future__ import annotations

from statistics import median
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, Points, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LOSS, HELD_OUT = "loss_mean", "validation_loss"
FEWEST, SINCE_BEST = 5, 3
"""Validations in all, and since the best, from which a turn can be told."""
SCORE = 4.0
"""Standard deviations of the noise of a validation that a rise must exceed: the best of many is low by two by
itself."""
NORMAL = 1.4826
SECOND = 6**0.5
"""Second differences of noise are so many times as wide as the noise."""


class Overfitting(CourseCheck):
    """The loss on what is held out does not rise from its best value while that of the training falls.

    Judged is the median of the last three validations over the best. The noise of a validation is taken from second
    differences of the course, so a smooth rise is no noise. Nothing can be wrong where the rise is within noise, or
    where the loss of the training has risen too: that is another trouble.

    A rise of 3 % in cross-entropy is beyond what dropout, rate and small validation sets leave in a healthy course.
    References: Prechelt 1998, "Early stopping - but when?" (generalisation loss).
    """

    name = "overfitting"
    title = "rise of the validation loss"
    metric = HELD_OUT
    weighs = (LOSS,)
    limit = Limit(warn=0.03, fail=0.25)
    meaning = "The loss on what is held out rises while that of the training falls."
    impact = "The model learns its data by heart; each step makes it worse on everything else."
    diagnosis = (
        "How often has it seen each example, and how many weights stand against how many tokens? Compare the loss of "
        "the training with that of what is held out at the best checkpoint. If they were apart from the start, see the "
        "gap."
    )
    mitigation = (
        "Stop, and take the checkpoint with the best validation; get more data, or more dropout and weight decay; make "
        "the model smaller; when fine-tuning, lower the rate and the number of epochs."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return how far the last validations lie above the best, over the best."""
        del reference
        course = course_of(HELD_OUT, snapshot, history)
        if len(course) < FEWEST:
            return self.too_few(snapshot, len(course), FEWEST, "validations")
        best_step, best = min(course, key=lambda point: point[1])
        since = [point for point in course if point[0] > best_step]
        if best <= 0 or len(since) < SINCE_BEST:
            return self.harmless(snapshot, 0.0, f"The best validation is a recent one: {best:.4g}.")
        rise = median(loss for _, loss in since[-SINCE_BEST:]) - best
        said = f"What is held out costs {rise / best:.1%} more than at step {best_step:,.0f}, where it cost {best:.4g}"
        if rise <= SCORE * _noise(course):
            return self.harmless(snapshot, rise / best, f"{said}; that is within its noise.")
        before, now = _around(course_of(LOSS, snapshot, history), best_step)
        if not now < before:
            return self.harmless(snapshot, rise / best, f"{said}, and the training costs more as well.")
        return self.found(snapshot, rise / best, f"{said}; the training went from {before:.4g} to {now:.4g}.")


def _noise(course: Points) -> float:
    """Return the standard deviation of a validation around its course."""
    losses = [loss for _, loss in course]
    bends = [abs(a - 2 * b + c) for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    return NORMAL * median(bends) / SECOND


def _around(course: Points, step: float) -> tuple[float, float]:
    """Return the loss of the training around a step, and lately."""
    near = sorted(course, key=lambda point: abs(point[0] - step))[:SINCE_BEST]
    if not course:
        return 0.0, 0.0
    return median(loss for _, loss in near), median(loss for _, loss in course[-SINCE_BEST:])
