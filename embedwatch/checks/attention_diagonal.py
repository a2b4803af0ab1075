"""Heads must mix tokens."""

from __future__ import annotations

from embedwatch.core.check import LEAST_QUERIES, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class AttentionDiagonal(ThresholdCheck):
    """Heads do not give all attention to the query's own token.

    A head that gives more than 0.95 to it mixes nothing; queries that see fewer than 8 keys are left out. Of the heads
    of three trained models, and of new ones, none does. It warns at half of a layer's heads and fails at all.

    References: Clark et al. 2019, "What does BERT look at?" (arXiv 1906.04341): most heads put little attention on the
    current token.
    """

    name = "attention_diagonal"
    title = "heads that look at their own token only"
    metric = "attention_diagonal_heads_ratio"
    roles = ("attention",)
    limit = Limit(warn=0.5, fail=1.0)
    exhibits = ("attention_map",)
    meaning = "Heads of this layer hand each token its own value and nothing of the others."
    impact = "Tokens do not see one another here: the model works like a bag of words in this layer."
    diagnosis = (
        "Is the mask right? One that hides all keys but the own looks like this. Look for a position bias that falls "
        "off too steeply, a window of one token, and queries and keys that share their weights."
    )
    mitigation = "Correct mask, window or position bias; go back to a checkpoint in which heads looked at other tokens."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which chance decides."""
        del snapshot
        return LEAST_QUERIES

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words."""
        del snapshot
        return f"{measurement.number:.0%} of the heads look at the query's own token only."
