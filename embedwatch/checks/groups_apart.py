"""Labelled groups should hold together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class GroupsApart(ThresholdCheck):
    """Rows of a labelled group are closer to each other than to other groups."""

    name = "groups_apart"
    title = "cohesion margin"
    metric = "cohesion_margin"
    roles = STORED
    labels: ClassVar[Mapping[str, str]] = {"mean": "removed"}
    limit = Limit(warn=0.02, fail=0.005, side="below")
    exhibits = ("groups",)
    meaning = "Rows of one labelled group are no closer to each other than to rows of other groups."
    impact = "The space does not carry what the labels mean: classification and search by them will be near chance."
    diagnosis = (
        "Check that labels and rows are in the same order first; then look at the loosest groups in the exhibit."
    )
    mitigation = "Fix the pairing of labels and rows; fine-tune on the labels, or choose a model that knows the domain."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return both cosines behind the margin."""
        inside = snapshot.number("cohesion", mean="removed")
        between = snapshot.number("separation", mean="removed")
        if inside is None or between is None:
            return ""
        return f"With the common mean removed, cosine is {inside:.3f} inside groups and {between:.3f} between them."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows from which group means say something."""
        del snapshot
        return 10
