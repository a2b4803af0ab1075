"""Heads must differ."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

ROWS_PER_HEAD = 32
USUAL_HEADS = 12


class AttentionTwinHeads(ThresholdCheck):
    """Heads of a layer do not all look at the same keys.

    Compared is what heads add to an even look, without the first and the last token, on the same queries. In three
    trained models the most alike heads of a layer have a cosine of up to 0.985, in new ones of 0.2. It warns where a
    quarter of the heads have a twin (a cosine of 0.99), and fails at three quarters. Heads that look alike may still
    pass on different values.

    References: Michel et al. 2019, "Are sixteen heads really better than one?" (arXiv 1905.10650); Voita et al. 2019,
    "Analyzing multi-head self-attention: specialized heads do the heavy lifting" (arXiv 1905.09418).
    """

    name = "attention_twin_heads"
    title = "heads that do the same"
    metric = "attention_twin_heads_ratio"
    weighs = ("attention_heads",)
    roles = ("attention",)
    limit = Limit(warn=0.25, fail=0.75)
    exhibits = ("attention_twins",)
    meaning = "Heads of this layer look at the same keys, query by query."
    impact = "They cost as much as different ones and choose no more than one does."
    diagnosis = (
        "Were the heads initialised alike, or their weights copied, as where the key heads of a model were multiplied? "
        "Is an adapter of low rank all that makes queries and keys? Does one position bias outweigh the rest?"
    )
    mitigation = "Initialise heads independently, raise the rank of the adapter, or give the layer fewer heads."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return 32 rows for each head: two heads agree on a few queries by chance."""
        return ROWS_PER_HEAD * int(snapshot.number("attention_heads") or USUAL_HEADS)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words, and how alike the closest are."""
        cosine = snapshot.number("attention_head_cosine_max")
        closest = "" if cosine is None else f"; the closest have a cosine of {cosine:.3f}"
        return f"{measurement.number:.0%} of the heads do what another one does{closest}."
