"""No far place is nearer than the neighbour."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionAlias(ThresholdCheck):
    """Codes of places that are far apart lie further apart than those of neighbours."""

    name = "position_alias"
    title = "nearest far place over the neighbour"
    metric = "position_alias_neighbours"
    weighs = ("position_alias_lag", "position_alias_cosine")
    roles = ("positions",)
    limit = Limit(warn=1.0, fail=0.2, side="below")
    exhibits = ("position_waves",)
    meaning = (
        "There is a far offset at which two places look more alike than neighbours do: one is taken for the other."
    )
    impact = (
        "Attention that looks for a near token finds the far one as well; start and end of a text, or every so "
        "many tokens, are mixed up."
    )
    diagnosis = (
        "Look at the exhibit position_kernel: which offset, and which waves meet there. Few dimensions turn, or "
        "their periods are whole numbers."
    )
    mitigation = (
        "Let more dimensions turn, or use a base whose waves do not meet within the length: RoPE with another θ "
        "or a scaling, or ALiBi. Until then use texts shorter than the offset, in chunks with separators."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        lag, cosine = snapshot.number("position_alias_lag") or 0, snapshot.number("position_alias_cosine") or 0
        return (
            f"Places {lag:,.0f} apart lie {measurement.number:.3g} times as far apart as neighbours (resemblance "
            f"{cosine:.4f})."
        )
