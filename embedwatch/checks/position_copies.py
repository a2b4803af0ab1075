"""Each row of a table of positions is its own."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionCopies(ThresholdCheck):
    """No row of learned positions is another one again: nearer than a tenth of the usual distance of neighbours."""

    name = "position_copies"
    title = "rows of the table that are another row"
    metric = "position_copied_rows"
    roles = ("positions",)
    limit = Limit(warn=1, fail=8)
    exhibits = ("position_copies",)
    meaning = "Two places have the same row: to the model they are one."
    impact = (
        "Tokens at the one place are taken for tokens at the other; if many rows are copied, far parts of texts "
        "are mixed up."
    )
    diagnosis = (
        "See which rows: one pair speaks of a damaged file, rows in a fixed distance of a table that was "
        "stretched by repeating it."
    )
    mitigation = (
        "Restore the rows from the model's origin. To stretch a table, interpolate it and train on, or train with "
        "RoPE or ALiBi; until then cut texts into chunks with separators."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        if measurement.number == 1:
            return "One row of the table of positions is another row again."
        return f"{measurement.number:,.0f} rows of the table of positions are another row again."
