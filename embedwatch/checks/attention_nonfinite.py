"""Rows of attention must be numbers."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class AttentionNonfinite(ThresholdCheck):
    """No sampled row of attention is NaN or infinite.

    References: Wortsman et al. 2023, "Small-scale proxies for large-scale Transformer training instabilities"
    (arXiv 2309.14322): logits outgrow the precision before the loss is lost.
    """

    name = "attention_nonfinite"
    title = "rows of attention that are NaN or infinite"
    metric = "attention_nonfinite_rows_total"
    roles = ("attention",)
    limit = Limit(fail=1)
    exhibits = ("attention_nonfinite_heads",)
    severity = "critical"
    meaning = "The softmax or the output of some queries is no number."
    impact = "One such token makes the rest of its sequence NaN in the layers above, and in training every weight."
    diagnosis = (
        "Do all heads have it, or a few? Were the logits large before it, and is the precision float16? A query that "
        "sees no key gives NaN in many kernels: look at the mask of padded or empty texts. Do the inputs of the layer "
        "hold NaN already?"
    )
    mitigation = (
        "Compute logits and softmax in float32 or bfloat16, normalise queries and keys, leave out empty texts or give "
        "them one key to see, go back to weights that were sound."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return how many of how many rows."""
        return f"{measurement.number:,.0f} of {snapshot.provenance.rows:,} rows are NaN or infinite."
