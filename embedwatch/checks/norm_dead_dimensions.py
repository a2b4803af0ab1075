"""A normalisation should let all dimensions through."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NormDeadDimensions(ModelCheck):
    """No normalisation takes out many dimensions by gains near 0.

    0.8 % of the dimensions in the worst normalisation of MiniLM, 0.2 % in SmolLM2.
    """

    name = "norm_dead_dimensions"
    title = "dimensions taken out by a normalisation"
    metric = "norm_gain_dead_ratio"
    roles = ("layers",)
    limit = Limit(warn=0.1, fail=0.5)
    exhibits = ("norm_gains",)
    meaning = "A normalisation multiplies many dimensions by next to nothing."
    impact = "What stands in them is lost to everything behind it."
    diagnosis = (
        "Which module, by the exhibit? Pruned on purpose, or weight decay on gains, or a tensor that was not loaded?"
    )
    mitigation = "Load the weights again; leave gains out of weight decay."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share."""
        del snapshot
        return f"One normalisation takes out {measurement.number or 0:.1%} of its dimensions."
