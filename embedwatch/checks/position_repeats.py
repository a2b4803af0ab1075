"""A table of positions does not repeat itself."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionRepeats(ThresholdCheck):
    """Rows one period apart are not one: the worst mean cosine after centring is below 0.9, 0.65 in healthy models."""

    name = "position_repeats"
    title = "resemblance of rows one period apart"
    metric = "position_repeat_cosine"
    weighs = ("position_repeat_rows",)
    roles = ("positions",)
    limit = Limit(warn=0.9, fail=0.95)
    exhibits = ("position_copies",)
    severity = "warning"
    meaning = "The table of positions repeats itself: after so many rows it begins again."
    impact = (
        "Places one period apart are one to the model. Long texts are read as a pile of short ones, start and end "
        "among them."
    )
    diagnosis = (
        "See position_lags for the period: a table that was stretched by repeating it has that of the old length."
    )
    mitigation = (
        "Restore the table; to stretch one, interpolate it and train on, or train with RoPE or ALiBi. Until then "
        "use texts shorter than the period, in chunks with separators."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        period = snapshot.number("position_repeat_rows") or 0
        return f"Rows {period:,.0f} apart resemble each other by {measurement.number:.3f}: the table repeats itself."
