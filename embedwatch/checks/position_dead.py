"""No row of positions is zero."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionDead(ThresholdCheck):
    """Each place within the table has a row that is not zero."""

    name = "position_dead"
    title = "rows of positions that are zero"
    metric = "position_dead_rows"
    roles = ("positions",)
    limit = Limit(warn=1, fail=8)
    exhibits = ("position_dead",)
    meaning = "Rows of the table of positions are zero: tokens there have no place."
    impact = "All these places look the same, and attention by place fails there."
    diagnosis = "See which rows: at the end of the table they were never loaded, elsewhere they were damaged."
    mitigation = "Restore the rows from the model's origin, or use the model for texts that end before them."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        return f"{measurement.number:,.0f} rows of the table of positions are zero."
