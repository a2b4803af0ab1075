"""Longer texts show no phases that training never saw."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionUnseen(ThresholdCheck):
    """Within the asked length no wave reaches phases beyond those of training."""

    name = "position_unseen"
    title = "waves that meet phases they never saw"
    metric = "position_unseen_ratio"
    weighs = ("position_length",)
    roles = ("positions",)
    limit = Limit(warn=1e-9, fail=0.2)
    meaning = "At the asked length slow waves turn further than they ever did in training."
    impact = (
        "Queries and keys meet angles that no weight was trained for; beyond the trained length the loss usually "
        "jumps within some hundred tokens."
    )
    diagnosis = (
        "Compare the asked length with the trained one, and see the scaling: linear, YaRN and Llama 3's keep all "
        "phases within those of training, plain positions and NTK do not."
    )
    mitigation = (
        "Use RoPE with a scaling that keeps to trained phases (YaRN, Llama 3's, linear) with a factor of asked "
        "over trained length, best after some training with it; or cut texts into chunks with separators."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        length = snapshot.number("position_length") or 0
        return f"{measurement.number:.1%} of the waves meet phases at {length:,.0f} tokens that they never saw."
