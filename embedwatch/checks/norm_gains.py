"""No gain of a normalisation may tower over the others."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NormGains(ModelCheck):
    """The largest gain of a normalisation is not hundreds of times the median one of the same.

    2.9 in MiniLM, 14 in SmolLM2, where single dimensions stand out by design of the training.
    """

    name = "norm_gains"
    title = "gains of normalisations"
    metric = "norm_gain_peak_ratio"
    roles = ("layers",)
    limit = Limit(warn=200, fail=10_000)
    exhibits = ("norm_gains",)
    meaning = "One dimension behind a normalisation is hundreds of times as large as the others."
    impact = "It is nearly all that the next layer sees, and half precision loses the digits of the rest."
    diagnosis = (
        "Which module, by the exhibit, and since which checkpoint? A rate too high, weight decay on gains, a bit flip?"
    )
    mitigation = "Go back to a checkpoint before it; train with a lower rate or clipping; restore the file."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the quotient."""
        del snapshot
        return f"The largest gain is {measurement.number:.3g} times the median one of its normalisation."
