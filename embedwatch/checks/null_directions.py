"""Directions should carry variance."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

KNOWN_UP_TO = 1536
"""Dimension up to which second moments are exact."""


class NullDirections(ThresholdCheck):
    """Few directions carry no variance at all."""

    name = "null_directions"
    title = "empty directions"
    metric = "null_directions_ratio"
    roles = STORED
    weighs = ("distinct_rows",)
    limit = Limit(warn=0.1, fail=0.5, side="above")
    exhibits = ("spectrum",)
    meaning = "A share of the directions carries no variance: the rows lie in a subspace."
    impact = (
        "The vectors could be stored in fewer dimensions; a model that truly had more has lost information on the way."
    )
    diagnosis = "Compare the rank with the sizes of projections, PCA, LoRA ranks and padded dimensions in the pipeline."
    mitigation = "Remove the projection or padding, or store the reduced vectors without it."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the value exists: where the spectrum is sketched, the smallest directions are not known."""
        return super().applies(snapshot) and (snapshot.provenance.dimension or 1) <= KNOWN_UP_TO

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return 2 D: fewer rows fill too few directions to judge."""
        return 2 * (snapshot.provenance.dimension or 1)

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return as many: rows that repeat fill no further direction."""
        return self.minimum_rows(snapshot)
