"""Directions must differ."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

LEAST_ROWS = 10


class Collapse(ThresholdCheck):
    """Rows do not all point the same way."""

    name = "collapse"
    title = "mean cosine"
    metric = "mean_cosine"
    roles = STORED
    weighs = ("distinct_rows",)
    limit = Limit(warn=0.95, fail=0.98)
    exhibits = ("largest_dimensions",)
    severity = "critical"
    meaning = "Nearly all rows point the same way; what tells them apart is lost in what they share."
    impact = "Every pair looks similar, thresholds on cosine mean nothing, and low precision erases what is left."
    diagnosis = (
        "Compare with the mean removed: if rows then differ, an offset hides them; if not, the representation "
        "collapsed."
    )
    mitigation = (
        "In training: contrastive loss with more negatives, a lower learning rate, no collapse of the temperature. "
        "In serving: check pooling and layer; subtract the mean if the model is known to be anisotropic."
    )

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which a mean over pairs says little."""
        del snapshot
        return LEAST_ROWS

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return as many: with so few, equal rows make a good part of the pairs."""
        return self.minimum_rows(snapshot)
