"""No dimension should drown the others."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class DominatingDimension(ThresholdCheck):
    """No dimension is many times larger than the others."""

    name = "dominating_dimension"
    title = "largest dimension"
    metric = "dimension_scale_ratio"
    roles = (*STORED, "token")
    limit = Limit(warn=15, fail=30)
    exhibits = ("largest_dimensions",)
    meaning = (
        "One or a few dimensions are many times larger than the rest (rogue dimensions): usual inside language models, "
        "harmful in vectors that are compared."
    )
    impact = "Cosine and dot product see these dimensions and little else; rounding to int8 spends its range on them."
    diagnosis = (
        "Look at the exhibit: is it constant (an offset) or does it vary (a feature, or a column that is no embedding)?"
    )
    mitigation = (
        "Stored vectors: make sure that no id, length or score is among the dimensions; standardise or drop these. A "
        "model at work: look at this column of the embedding table, and put the table under weight decay."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the factor, and what the leading dimension makes of the mean cosine."""
        share = snapshot.number("rogue_cosine_ratio", top="1")
        part = "" if share is None else f"; it makes {share:.0%} of the mean cosine"
        return f"The largest dimension is {measurement.number:.3g} times the median one{part}."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows from which a scale is no accident."""
        del snapshot
        return 10
