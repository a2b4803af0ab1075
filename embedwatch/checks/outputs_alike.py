"""A model must not say the same everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.course_check import CourseCheck
from embedwatch.core.history import History, course_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

SHARE, ENTROPY = "output_top_share_ratio", "output_entropy_ratio"
ALIKE, FEWER = 0.98, 0.9
"""At once, and for long: healthy models come to 0.95 for a moment, and to 0.7 in the last third of a run."""
SURE = 0.02
"""Entropy over ln V of a model that is sure: that of single tokens is 0.5 and more."""
FEWEST_WINDOWS = 12
PART = 3
"""A third of the run so far is too long to predict one token only."""


class OutputsAlike(CourseCheck):
    """Predictions differ between positions.

    Judged is the share of the positions with the same likeliest token. Each training goes through a time in which that
    is the most frequent token everywhere, so a high share fails only together with an entropy of nearly nothing, and
    warns only where it has been so through the last third of the windows, twelve at least.
    """

    name = "outputs_alike"
    title = "same prediction everywhere"
    metric = SHARE
    weighs = (ENTROPY,)
    limit = Limit(warn=FEWER, fail=ALIKE)
    severity = "critical"
    meaning = "The model predicts one and the same token at nearly all positions."
    impact = (
        "What comes in makes no difference to what comes out: it is useless, and its gradients teach it nothing else."
    )
    diagnosis = (
        "Sure of one token: are targets all the same (padding that is not left out of the loss, a shifted mask)? "
        "Unsure: do inputs reach the outputs - is attention masked away, are layers dead, is the rate too low or the "
        "data shuffled apart from its targets?"
    )
    mitigation = (
        "Leave padding out of the loss and put targets right; go back to a checkpoint before it, with a lower rate or "
        "clipped gradients."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of the positions with the same prediction."""
        del reference
        share, entropy = snapshot.number(SHARE), snapshot.number(ENTROPY)
        if share is None:
            return self.too_few(snapshot, 0, 1, "steps with logits")
        said = f"The same token is the likeliest at {share:.0%} of the positions"
        if share < FEWER:
            return self.found(snapshot, share, f"{said}.")
        if share >= ALIKE and entropy is not None and entropy <= SURE:
            return self.found(snapshot, share, f"{said}, with an entropy of {entropy:.2g} × ln V.")
        course = course_of(SHARE, snapshot, history)
        late = [share for _, share in course[-max(len(course) // PART, 1) :]]
        if len(course) < FEWEST_WINDOWS or min(late) < FEWER:
            return self.harmless(snapshot, share, f"{said}, as at the beginning of each training.")
        lasting = self.found(snapshot, share, f"{said}, and was so for {len(late)} windows.")
        return replace(lasting, limit=Limit(warn=FEWER))
