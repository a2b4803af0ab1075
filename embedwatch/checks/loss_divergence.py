"""The loss must not run away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LOSS, INITIAL, CHANCE = "loss_median", "initial_loss_ratio", "chance_loss"
WARN, FAIL = 1.25, 2.0
WARN_BLIND, FAIL_BLIND = 3.0, 10.0
"""Over the loss at the start, where it is not known what a blind guess costs: a loss may then mean anything."""


FIRST = 5
"""Windows at the start, the highest of which counts there: a loss may begin near zero."""


class LossDivergence(CourseCheck):
    """The loss is not far above that of a blind guess once it was lower.

    Judged is the median loss of the window, so that odd batches do no harm, over the larger of ln V and the lowest that
    the loss has been: a model that began too wide is above ln V and comes down. The first step counts among what has
    been, and so does each window. Where ln V is not known, the loss is held against that of the start, with wider
    limits. Sound trainings have at most 1, once a window is behind them.

    References: Chowdhery et al. 2022, "PaLM", section 5.1 (https://arxiv.org/abs/2204.02311); Wortsman et al. 2023,
    "Small-scale proxies for large-scale Transformer training instabilities" (https://arxiv.org/abs/2309.14322).
    """

    name = "loss_divergence"
    title = "loss over that of a blind guess"
    metric = LOSS
    weighs = (INITIAL, CHANCE)
    limit = Limit(warn=WARN, fail=FAIL)
    exhibits = ("loss_course",)
    severity = "critical"
    meaning = "The model is sure of wrong answers: it pays more than one that gives every token the same probability."
    impact = "The weights have left the region in which anything was learned; each further step takes them farther."
    diagnosis = (
        "Try a tenth of the learning rate: is it too high for this optimizer, does warm-up end just before? Is there "
        "no clipping of gradients, is the loss summed in place of averaged, did half precision overflow, was the run "
        "resumed without the optimizer's moments?"
    )
    mitigation = (
        "Stop the run. Go back to a checkpoint before the rise; lower the rate, lengthen the warm-up and clip "
        "gradients at a norm of 1."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the median loss over the larger of a blind guess's and the lowest so far."""
        del reference
        *earlier, (_, now) = course_of(LOSS, snapshot, history) or [(0.0, snapshot.number(LOSS) or 0.0)]
        been = [loss for _, loss in earlier] + self._first(snapshot, history)
        if not been:
            return self.too_few(snapshot, 1, 2)
        chance = snapshot.number(CHANCE) or 0.0
        known = chance > 0
        level = max(chance, min(been)) if known else max(been[:FIRST])
        if level <= 0:
            return self.harmless(snapshot, 0.0, "The loss was not above zero, so a rise has no share of it.")
        lowest = f"the lowest so far is {min(been):.3g}, a blind guess costs {chance:.3g}"
        said = f"The loss is {now:.3g}; {lowest if known else f'at the start it was at most {level:.3g}'}."
        found = self.found(snapshot, max(0.0, now / level), said)
        return found if known else replace(found, limit=Limit(warn=WARN_BLIND, fail=FAIL_BLIND))

    def _first(self, snapshot: Snapshot, history: History | None) -> list[float]:
        """Return the loss of the first step of all, if it was seen."""
        for each in (*(history or ()), snapshot):
            ratio, chance = each.number(INITIAL), each.number(CHANCE)
            if ratio is not None and chance is not None:
                return [ratio * chance]
        return []
