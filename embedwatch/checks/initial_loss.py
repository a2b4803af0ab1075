"""A training must begin near a blind guess."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class InitialLoss(ThresholdCheck):
    """The loss of the first step is near ln V, which giving all V tokens the same probability costs.

    Asked only of the window that holds the first step. Tied tables that are scaled by √D begin by repeating their
    input, with a loss near √D: that is up to 3.6 × ln V at D = 1,024, and unlearned in a few steps.
    """

    name = "initial_loss"
    title = "first loss over that of a blind guess"
    metric = "initial_loss_ratio"
    roles = ("training",)
    limit = Limit(warn=4, fail=10)
    meaning = "The untrained model is sure of wrong answers: its weights start too large, or targets do not fit."
    impact = (
        "The first steps are spent on unlearning, with gradients so large that clipping or Adam's moments keep a trace "
        "of them; deep models may never recover."
    )
    diagnosis = (
        "Compare the scale of each weight with 1 / √fan-in, the output table first; look for logits that are scaled "
        "twice, and for a loss that is summed in place of averaged."
    )
    mitigation = "Draw the weights with a standard deviation of 1 / √fan-in (or 0.02), the output table of D^-½."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the window holds the first step."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the quotient in words."""
        del snapshot
        return f"The first loss is {measurement.number:.3g} × ln V, that of a blind guess."
