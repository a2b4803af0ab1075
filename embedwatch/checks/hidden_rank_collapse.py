"""Tokens inside a model must use its dimensions."""

from __future__ import annotations

import math

from embedwatch.core.check import LIVE, ThresholdCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

LEAST_ROWS = 256
FILLED = 0.5
"""The rows that differ must be able to fill this share of the directions."""
KNOWN_UP_TO = 1536
"""Dimension up to which second moments are exact."""


class HiddenRankCollapse(ThresholdCheck):
    """Inside a model, the correlation matrix of the dimensions has a fair share of its rank.

    Rows that repeat, as the tokens of repeated texts do, fill no further direction: too few different rows say nothing.
    Not asked of the outputs of the token embedding: a few frequent tokens make most of these rows, and their low rank
    is that of the language.
    """

    name = "hidden_rank_collapse"
    title = "rank of the correlation"
    metric = "correlation_rank_ratio"
    roles = tuple(role for role in LIVE if role != "token")
    weighs = ("distinct_rows",)
    limit = Limit(warn=0.2, fail=0.1, side="below")
    exhibits = ("spectrum",)
    meaning = "Tokens vary in far fewer directions than the place has dimensions, whatever the scale of each."
    impact = "Most of the width carries nothing: the model works like one of a fraction of its size."
    diagnosis = (
        "Ask first whether the texts are all alike. Then find the first place at which it fails: a low-rank adapter "
        "that replaced the weights, heads that all do the same, or a projection that was initialised with zeros."
    )
    mitigation = (
        "Go back to the last checkpoint that was sound; check initialisation, adapters and residual connections below "
        "that place; lower weight decay and learning rate."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the value exists: where the spectrum is sketched, single dimensions are not known."""
        return super().applies(snapshot) and (snapshot.provenance.dimension or 1) <= KNOWN_UP_TO

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return how many rows are needed: 256, and half of the directions that all rows could fill."""
        fillable = min(snapshot.provenance.rows - 1, snapshot.provenance.dimension or 1)
        return max(LEAST_ROWS, math.ceil(FILLED * fillable))

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return as many: rows that repeat fill no further direction."""
        return self.minimum_rows(snapshot)
