"""Norms should be of one order."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class ExtremeNorms(ThresholdCheck):
    """No row is many times longer than the median row."""

    name = "extreme_norms"
    title = "largest norm over median"
    metric = "norm_extreme_ratio"
    roles = (*STORED, "token", "embedding")
    limit = Limit(warn=10, fail=50)
    exhibits = ("largest_norms",)
    meaning = "Some rows are many times longer than the median row."
    impact = (
        "By dot product they win every search; in attention they take the whole softmax; they rule means and variances."
    )
    diagnosis = (
        "Look at the rows named in the exhibit: frequent tokens, empty or very long inputs, another unit or model?"
    )
    mitigation = (
        "Stored vectors: normalise them if the metric is cosine. A model at work: put the embedding table under weight "
        "decay, or normalise what it puts out."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the factor with both norms."""
        largest, share = snapshot.number("norm_max"), snapshot.number("norm_top_share_ratio")
        size = "" if largest is None else f" is {largest:.4g},"
        part = "" if share is None else f"; the largest 1 % hold {share:.1%} of all norms"
        return f"The largest norm{size} {measurement.number:.3g} times the median{part}."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows from which a median means something."""
        del snapshot
        return 10
