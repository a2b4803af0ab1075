"""Neighbours are told apart."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionResolution(ThresholdCheck):
    """The code of a place differs from that of the next: 1 - g(1), 0.034 for heads of 64 and θ = 10,000."""

    name = "position_resolution"
    title = "how unlike neighbours are"
    metric = "position_resolution"
    roles = ("positions",)
    limit = Limit(warn=1e-3, side="below")
    meaning = "Neighbouring places look almost the same: positions are stretched so far that near order is blurred."
    impact = (
        "Order within a phrase is told badly; linear scaling by s costs s² of it, and a model that was not "
        "trained so gets worse on short texts."
    )
    diagnosis = "See the kind of scaling and its factor in the configuration."
    mitigation = (
        "Use a scaling that leaves fast waves as they are (YaRN, or that of Llama 3) instead of a linear one, or "
        "a smaller factor, and train with it."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        return f"Neighbours differ by 1 - g(1) = {measurement.number:.3g} only."
