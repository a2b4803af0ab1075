"""A table of positions has an end, and no text goes beyond it."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionTableEnd(ThresholdCheck):
    """Each position that is asked for has a row in the table of learned positions."""

    name = "position_table_end"
    title = "positions asked for without a row"
    metric = "position_beyond_table"
    weighs = ("position_length",)
    roles = ("positions",)
    limit = Limit(fail=1)
    severity = "warning"
    meaning = "Texts are longer than the table of learned positions: beyond it there is nothing."
    impact = (
        "The model raises an error (index out of range, or shapes that do not match), or what runs it cuts texts "
        "without a word."
    )
    diagnosis = (
        "Compare the rows of the table, without those before the first token, with the number of tokens of the "
        "longest texts."
    )
    mitigation = (
        "Use the model for shorter texts, cut long ones into chunks with separators and embed each, or choose one "
        "whose positions carry further: RoPE with a scaling (YaRN, Llama 3's), or ALiBi; then train on texts of "
        "that length."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        length = snapshot.number("position_length") or 0
        return f"The table has no rows for {measurement.number:,.0f} of {length:,.0f} positions."
