"""Gradients must neither explode nor vanish."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

RAW, APPLIED, LOSS = "gradient_norm_mean", "gradient_norm_applied_mean", "loss_mean"
START, FEWEST = 2, 5
"""Windows at the start, where gradients are as large as the initialisation makes them, and those needed after it."""
LEARNED = 0.5
"""Where the loss has come below this share of its first, gradients may be small because there is little left to
learn."""


class GradientScale(CourseCheck):
    """The norm of the gradient stays within two orders of magnitude of what is usual in this training.

    Judged is the mean norm of the window, before clipping where that is known, over the median of the windows before
    it, without the first two. In healthy short and long trainings the quotient stays between 0.2 and 4. A small one is
    no fault where the loss has come below half of its first.

    References: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks",
    https://arxiv.org/abs/1211.5063
    """

    name = "gradient_scale"
    title = "gradient against the usual"
    metric = APPLIED
    weighs = (RAW, LOSS)
    limit = Limit(warn=10, fail=100)
    floor = Limit(warn=0.01, fail=0.0001, side="below")
    meaning = "The gradient has become many times larger, or smaller, than it was."
    impact = "Large ones throw the weights about, and end in NaN; with small ones nothing is learned any more."
    diagnosis = (
        "Which parameters hold the gradient: embedding, one layer, the output? Large: the learning rate, an odd batch, "
        "a division by something near zero, attention logits that grow. Small: saturated softmaxes, activations that "
        "are dead, a loss that is scaled down, a part of the graph that is detached."
    )
    mitigation = (
        "Large: lower the rate, lengthen the warm-up, clip, normalise queries and keys. Small: normalise before "
        "layers, check the scale of the loss and of the initialisation, mend what cuts the graph."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether some norm of the gradient is known."""
        return super().applies(snapshot) or (
            super(CourseCheck, self).applies(snapshot) and snapshot.number(RAW) is not None
        )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the mean norm over the median of the windows before."""
        del reference
        name = RAW if snapshot.number(RAW) is not None else APPLIED
        *earlier, (_, now) = course_of(name, snapshot, history) or [(0.0, 0.0)]
        usual = [norm for _, norm in earlier[START:]]
        if len(usual) < FEWEST:
            return self.too_few(snapshot, len(earlier), START + FEWEST)
        before = median(usual)
        if before <= 0:
            return self.found(snapshot, 1.0, "There was no gradient before.")
        quotient = now / before
        found = self.found(snapshot, quotient, f"The norm of the gradient is {now:.3g}, and was {before:.3g} before.")
        if self.floor.status(quotient) == "ok":
            return found
        losses = course_of(LOSS, snapshot, history)
        if losses and losses[-1][1] < LEARNED * losses[0][1]:
            return self.harmless(snapshot, quotient, f"{found.reason} There is little left to learn.")
        return replace(found, limit=self.floor)
