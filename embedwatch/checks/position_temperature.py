"""Cosine and sine have the size that the scaling gives them."""

from __future__ import annotations

from embedwatch.core.check import RangeCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionTemperature(RangeCheck):
    """The factor on cosine and sine (YaRN, LongRoPE) is the one of the configuration."""

    name = "position_temperature"
    title = "size of cosine and sine over the stated one"
    metric = "position_temperature_ratio"
    roles = ("positions",)
    limit = Limit(warn=1.02, fail=1.2)
    floor = Limit(warn=0.98, fail=0.8, side="below")
    meaning = "Cosine and sine are multiplied by another factor than the configuration states."
    impact = "Scores grow or shrink by its square: attention is sharper or flatter than it was trained."
    diagnosis = (
        "Compare attention_scaling of the rotary module with attention_factor, or 0.1 ln(factor) + 1, of the "
        "configuration."
    )
    mitigation = "Make the rotary module anew of the configuration."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        return f"Cosine and sine are {measurement.number:.3g} times as large as the configuration says."
