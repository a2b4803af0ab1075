"""Predictions do not get worse with depth."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionFalloff(ThresholdCheck):
    """Towards the asked length the loss does not rise: 0.3 nats make a token a third less likely."""

    name = "position_falloff"
    title = "growth of the loss with depth, in nats"
    metric = "position_loss_growth_nats"
    weighs = ("position_falloff",)
    roles = ("positions",)
    limit = Limit(warn=0.3, fail=1.0)
    meaning = "The model predicts worse deep in a text than in its first half: its positions do not carry so far."
    impact = "Answers and vectors of long texts rest on a part that the model reads badly."
    diagnosis = (
        "See position_losses: a jump at one place is the end of what positions carry, a slow rise speaks of "
        "scaling or precision."
    )
    mitigation = (
        "Use the model for shorter texts, cut long ones into chunks with separators and embed each, or choose one "
        "whose positions carry further: RoPE with a scaling (YaRN, Llama 3's), or ALiBi; then train on texts of "
        "that length."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        place = snapshot.number("position_falloff")
        start = "" if place is None else f" From position {place:,.0f} on it is worse by half a nat."
        return f"Deep in the text the loss is {measurement.number:.3g} nats higher.{start}"
