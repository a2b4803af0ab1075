"""Dimensions should move."""

from __future__ import annotations

from embedwatch.core.check import LIVE, ThresholdCheck, role_of
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

LEAST_ROWS = 10
"""Rows from which a constant is no accident."""
LEAST_TOKENS = 64
"""The same inside a model, where the first rows may all be of one token."""


class DeadDimensions(ThresholdCheck):
    """Next to no dimension is constant. Healthy encoders have been seen with up to 0.8 % of them."""

    name = "dead_dimensions"
    title = "dead dimensions"
    metric = "dead_dimensions_ratio"
    weighs = ("distinct_rows",)
    limit = Limit(warn=0.02, fail=0.1)
    exhibits = ("dead_dimensions",)
    meaning = "Some dimensions have the same value in every row: padding, a dead unit, a column that was never filled."
    impact = "They cost memory and search time, tell nothing, and a constant large one shifts every dot product."
    diagnosis = "Look which dimensions: a block at the end is padding, scattered ones are dead units of the last layer."
    mitigation = (
        "Stored vectors: remove the padding, or fill the column. A model at work: look at gains and biases of the "
        "normalisation before that place, and for units that no input moves."
    )

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows from which a constant is no accident."""
        return LEAST_TOKENS if role_of(snapshot) in LIVE else LEAST_ROWS

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return as many: a few distinct rows, repeated, leave units idle that others would move."""
        return self.minimum_rows(snapshot)
