"""Tokens must stay apart on their way through the layers."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class TokensAlike(ModelCheck):
    """Behind no layer do the tokens of different texts all point the same way.

    The least distance over the layers is 0.86 in MiniLM and 0.55 in SmolLM2; 0 is where all tokens are alike.

    References: Dong et al. 2021, "Attention is not all you need", https://arxiv.org/abs/2103.03404
    """

    name = "tokens_alike"
    title = "tokens alike with depth"
    metric = "alike_distance_min"
    roles = ("layers",)
    limit = Limit(warn=0.2, fail=0.05, side="below")
    exhibits = ("residual_depths",)
    meaning = "Behind some layer the tokens of all texts are nearly the same vector: the rank collapses with depth."
    impact = "What the texts say is lost from there on; all vectors that come out are alike."
    diagnosis = (
        "From which layer on, by the exhibit? Residual connections missing or scaled to nothing, post-norm in depth?"
    )
    mitigation = (
        "Restore the residual connections; normalise before sub-layers; go back to a checkpoint before the collapse."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the least distance, and that before the first layer."""
        first = snapshot.number("alike_distance_first")
        begin = "" if first is None else f", and {first:.2g} before the first layer"
        return f"Tokens are {measurement.number:.2g} from being all alike behind some layer{begin}."
