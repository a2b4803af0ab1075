"""Each row of positions was trained."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionUntrained(ThresholdCheck):
    """Rows at the end of the table resemble their neighbours as those before do."""

    name = "position_untrained"
    title = "rows at the end that were never trained"
    metric = "position_untrained_rows"
    weighs = ("position_rows",)
    roles = ("positions",)
    limit = Limit(warn=3)
    meaning = "Rows at the end of the table of positions are as they were drawn: no text in training was so long."
    impact = "Texts that reach so far get noise for a place; the length of the table is not the length of the model."
    diagnosis = "See position_lags, and how long texts in training were."
    mitigation = (
        "State the trained length in the tokenizer, cut longer texts into chunks with separators, or train on "
        "with texts of full length."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        rows = snapshot.number("position_rows") or 0
        return f"{measurement.number:,.0f} of {rows:,.0f} rows, the last, do not resemble their neighbours."
