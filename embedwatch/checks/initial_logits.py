"""A model that was only drawn should not be sure of anything."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

FRESH = 0.75
"""From this share of signs on a model is as it was drawn."""


class InitialLogits(ModelCheck):
    """Logits of a model that was only drawn spread by about 1 or less.

    With a deviation σ that says nothing, the first loss is about `ln V + σ² / 2`. Models of transformers start at 0.1
    to 1, ours at 1; a tied table from N(0, 1) at √D.
    """

    name = "initial_logits"
    title = "logits before training"
    metric = "logit_norm_std"
    roles = ("scale",)
    limit = Limit(warn=4, fail=15)
    meaning = "The output table starts too large: an untrained model is sure of wrong answers."
    impact = (
        "The first steps go into unlearning, with gradients so large that the optimizer's moments keep a trace of them."
    )
    diagnosis = "Look at the deviation that the table is drawn with, and for logits that are scaled twice. Is it tied?"
    mitigation = "Draw a table that makes logits from N(0, 1/D) or N(0, 0.02²), and scale its input by √D where needed."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model is as it was drawn."""
        signs = snapshot.number("fresh_signs_ratio")
        return super().applies(snapshot) and signs is not None and signs >= FRESH

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the deviation and what it costs."""
        del snapshot
        spread = measurement.number or 0.0
        return f"Logits spread by {spread:.3g}, which costs about {spread**2 / 2:.3g} above a blind guess."
