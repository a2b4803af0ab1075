"""Layers should not hold units without weights."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class EmptyUnits(ModelCheck):
    """No layer has many rows or columns of its matrices that are all zero.

    None in MiniLM and SmolLM2.
    """

    name = "empty_units"
    title = "units without weights"
    metric = "empty_unit_layer_max"
    roles = ("layers",)
    limit = Limit(warn=0.01, fail=0.5)
    exhibits = ("empty_units",)
    meaning = "A layer has units whose weights are all zero: they read nothing, or nothing reads them."
    impact = "The layer does less than its size, and what those units did is gone."
    diagnosis = (
        "Pruned on purpose? Else: a tensor that was not loaded, or units that died under a ReLU with weight decay."
    )
    mitigation = (
        "Load the weights again; where units died, lower the rate, or use an activation that lets gradients through."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share."""
        del snapshot
        return f"In the worst layer {measurement.number or 0:.1%} of the rows and columns are all zero."
