"""Vectors and keys of one length are those of another."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionLengthShift(ThresholdCheck):
    """Positions turn the same at the asked length and in short texts, so that what was kept can be compared."""

    name = "position_length_shift"
    title = "waves that turn otherwise in long texts"
    metric = "position_length_shift_ratio"
    weighs = ("position_length",)
    roles = ("positions",)
    limit = Limit(warn=0.01)
    meaning = (
        "The scaling depends on the length of the text: a longer one turns its first tokens otherwise than a "
        "shorter one."
    )
    impact = (
        "Keys in a cache that were turned at a shorter length do not fit those of a longer one, and vectors of "
        "short and long texts are of two models."
    )
    diagnosis = "The scaling is dynamic or longrope, and the asked length lies beyond the trained one."
    mitigation = (
        "Fill caches anew when the length crosses the limit, embed short and long texts with one fixed setting, "
        "or use a scaling that does not depend on the length (YaRN, linear)."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        length = snapshot.number("position_length") or 0
        return f"{measurement.number:.1%} of the waves turn otherwise at {length:,.0f} tokens than in short texts."
