"""Rows must use their dimensions."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class RankCollapse(ThresholdCheck):
    """The effective rank is a fair share of the dimensions."""

    name = "rank_collapse"
    title = "effective rank"
    metric = "effective_rank_ratio"
    roles = STORED
    weighs = ("distinct_rows",)
    limit = Limit(warn=0.1, fail=0.03, side="below")
    exhibits = ("spectrum",)
    meaning = "The rows vary in far fewer directions than they have dimensions (dimensional collapse)."
    impact = "Most of the memory and search time is spent on dimensions that carry nothing; distinctions are lost."
    diagnosis = (
        "Look at the spectrum: a sharp drop means a low-rank projection, a slow one a few dominating directions."
    )
    mitigation = (
        "Check for a projection or PCA left in the pipeline; in training raise the weight of the uniformity or "
        "decorrelation term, or lower the weight decay of the last layer."
    )

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return 2 D: fewer rows fill too few directions to judge."""
        return 2 * (snapshot.provenance.dimension or 1)

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return D / 2: rows that repeat fill no further direction, and so many could fill a half."""
        return (snapshot.provenance.dimension or 1) // 2
