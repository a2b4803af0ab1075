"""Gains and biases must be numbers."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NonfiniteNorms(ModelCheck):
    """All gains and biases of normalisations are finite."""

    name = "nonfinite_norms"
    title = "normalisations without numbers"
    metric = "nonfinite_norms"
    roles = ("layers",)
    limit = Limit(fail=1)
    exhibits = ("norm_gains",)
    severity = "critical"
    meaning = "A normalisation holds NaN or Inf."
    impact = "Everything behind it is NaN, for every text."
    diagnosis = "Did the training diverge, or was the file damaged or cut? Compare with the checkpoint before."
    mitigation = "Go back to the last checkpoint that is whole."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the number."""
        total = snapshot.number("normalisations") or 0
        return f"{measurement.number or 0:.0f} of {total:.0f} normalisations hold NaN or Inf."
