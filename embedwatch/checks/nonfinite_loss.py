"""Losses must be numbers."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NonfiniteLoss(ThresholdCheck):
    """No step has a loss that is NaN or infinite."""

    name = "nonfinite_loss"
    title = "losses that are NaN or infinite"
    metric = "nonfinite_losses_total"
    roles = ("training",)
    limit = Limit(fail=1)
    severity = "critical"
    meaning = "The loss of a step is NaN or infinite."
    impact = "Its gradient makes every weight NaN in one step, unless that step is skipped; nothing is learned from it."
    diagnosis = (
        "Does it come once or from one step on for ever? Look at learning rate and gradient norm before it, at targets "
        "outside the vocabulary, at batches without a target, and at half precision without loss scaling."
    )
    mitigation = (
        "Go back to a checkpoint before it; lower the learning rate or lengthen the warm-up, clip gradients, skip "
        "steps whose gradient is not finite, use bfloat16 in place of float16."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return how many of how many steps."""
        return f"{measurement.number:,.0f} of {snapshot.provenance.rows:,} losses are NaN or infinite."
