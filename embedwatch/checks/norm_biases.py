"""No bias of a normalisation may be huge."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class NormBiases(ModelCheck):
    """Biases of normalisations are not tens of times as large as what they are added to.

    At most 1.6 in MiniLM. Normalised entries are of size 1, times the gain.
    """

    name = "norm_biases"
    title = "biases of normalisations"
    metric = "norm_bias_max"
    roles = ("layers",)
    limit = Limit(warn=50, fail=1_000)
    exhibits = ("norm_gains",)
    meaning = "A bias behind a normalisation is far larger than anything that it is added to."
    impact = "It says the same for every token, and drowns what differs between them."
    diagnosis = "Which module, by the exhibit, and since which checkpoint? A rate too high, or a damaged file?"
    mitigation = "Go back to a checkpoint before it; train with a lower rate; restore the file."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the bias."""
        del snapshot
        return f"The largest bias of a normalisation is {measurement.number:.3g}."
