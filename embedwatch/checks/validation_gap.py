"""What is held out must cost about what the training costs, from the start."""

from __future__ import annotations

from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LOSS, HELD_OUT, CHANCE = "loss_mean", "validation_loss", "chance_loss"
FEWEST = 3
GROWING = 2.0
"""A gap that has grown to so many times its smallest is not one of the data."""
BLIND = 0.9
"""Above this share of a blind guess's loss nothing was learned, and all data costs the same."""


class ValidationGap(CourseCheck):
    """The loss on what is held out does not lie above that of the training from the first validation on.

    Judged is the smallest of the gaps so far, over the loss of the training: overfitting begins with a small one that
    grows, and does not show here. Left out are validations near a blind guess. Dropout and label smoothing make the gap
    smaller, even negative, since a validation is without.
    """

    name = "validation_gap"
    title = "gap to what is held out"
    metric = HELD_OUT
    weighs = (LOSS, CHANCE)
    limit = Limit(warn=0.15)
    meaning = "What is held out has cost more than the training from the first validation on."
    impact = (
        "It is another kind of data, or is treated otherwise: it says little about how the training goes, and early "
        "stopping by it stops at the wrong time."
    )
    diagnosis = (
        "Compare the two sets as spaces: embed both with the same model and audit them as two groups, or look at "
        "lengths, languages, sources and duplicates. Is the same template, tokenizer, truncation and mask applied? Is "
        "the loss averaged in the same way (over tokens or over sequences), without the padding?"
    )
    mitigation = "Draw both sets from one shuffled whole, without near duplicates between them; treat both alike."

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the smallest gap so far, over the loss of the training."""
        del reference
        losses = dict(course_of(LOSS, snapshot, history))
        blind = BLIND * (snapshot.number(CHANCE) or float("inf"))
        gaps = [
            (held_out - losses[step]) / losses[step]
            for step, held_out in course_of(HELD_OUT, snapshot, history)
            if 0 < losses.get(step, 0.0) < blind
        ]
        if len(gaps) < FEWEST:
            return self.too_few(snapshot, len(gaps), FEWEST, "validations")
        said = f"What is held out costs {min(gaps):+.1%} against the training at least, {gaps[-1]:+.1%} now"
        if gaps[-1] > GROWING * max(min(gaps), 0.0):
            return self.harmless(snapshot, min(gaps), f"{said}: if anything, it grows.")
        return self.found(snapshot, min(gaps), f"{said}, in {len(gaps)} validations.")
