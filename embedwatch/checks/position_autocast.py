"""Autocast leaves positions alone."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionAutocast(ThresholdCheck):
    """Under autocast to bfloat16 cosines and sines stay those of float64."""

    name = "position_autocast"
    title = "the same under autocast"
    metric = "position_autocast_error"
    roles = ("positions",)
    limit = Limit(warn=0.05)
    exhibits = ("position_parts",)
    meaning = "Under autocast the product of positions and frequencies is made in half precision."
    impact = "In mixed precision, training and serving, far places fall together, though the model in float32 is right."
    diagnosis = (
        "The product is a matrix product, which autocast lowers whatever its inputs are: `.float()` does not help."
    )
    mitigation = "Wrap it in torch.autocast(enabled=False), or write it as an elementwise product."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        return f"Under autocast a cosine or sine is off by {measurement.number:.3g}."
