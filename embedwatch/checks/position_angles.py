"""Cosines and sines are those of float64."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionAngles(ThresholdCheck):
    """What the model makes of positions is within 0.05 of exact cosines and sines, wherever it is asked."""

    name = "position_angles"
    title = "largest difference of a cosine or sine from float64"
    metric = "position_angle_error"
    weighs = ("position_numbers_bits",)
    roles = ("positions",)
    limit = Limit(fail=0.05)
    exhibits = ("position_parts",)
    meaning = "Cosines and sines in the model are not those of its positions and frequencies."
    impact = "Distances are wrong where the error is; attention there looks elsewhere."
    diagnosis = (
        "If every second place has the code of its neighbour, numbers of positions were rounded; if errors grow "
        "evenly, the product was made in half precision; if single rows are off, a table was damaged."
    )
    mitigation = (
        "Work angles out in float32 or float64 from whole positions, with autocast off, and round only cosine and sine."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        bits = snapshot.number("position_numbers_bits")
        cause = {8: " Positions rounded to bfloat16 give these values.", 11: " Positions rounded to float16 give them."}
        return f"A cosine or sine is off by {measurement.number:.3g}.{cause.get(int(bits or 0), '')}"
