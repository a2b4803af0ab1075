"""Every weight must be a number."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NonfiniteWeights(ModelCheck):
    """No weight of a model is NaN or Inf."""

    name = "nonfinite_weights"
    title = "weights that are no numbers"
    metric = "nonfinite_weights"
    roles = ("layers",)
    limit = Limit(fail=1)
    exhibits = ("odd_weights",)
    severity = "critical"
    meaning = "Weights hold NaN or Inf."
    impact = "Whatever passes through such a tensor is NaN, for every text or for each that meets the entry."
    diagnosis = (
        "Which tensors, by the exhibit, and one entry or all? One or a few: a bit flip, a damaged file, an overflow "
        "when it was saved in float16. All: the training diverged, or the tensor was never filled. Is it used at all: "
        "does the model have a module of this name? Compare with the checkpoint before."
    )
    mitigation = (
        "Go back to the last checkpoint whose weights are numbers, or download the file again. Save in bfloat16 or "
        "float32 what float16 cannot hold."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return how many entries of how many tensors."""
        broken, total = (snapshot.number(name) or 0 for name in ("nonfinite_weight_tensors", "weight_tensors"))
        if not measurement.number:
            return f"All entries of {total:,.0f} tensors are numbers."
        return f"{measurement.number:,.0f} entries are NaN or Inf, in {broken:,.0f} of {total:,.0f} tensors."
