"""A model is used for no longer texts than its positions are made for."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionRange(ThresholdCheck):
    """The asked length is within what the positions are made for."""

    name = "position_range"
    title = "positions asked for that the model is not made for"
    metric = "position_beyond_usable"
    weighs = ("position_length", "position_usable_length")
    roles = ("positions",)
    limit = Limit(warn=1)
    meaning = "Texts are longer than the positions of the model are made for."
    impact = (
        "What stands behind is told apart badly or not at all: attention meets distances that it never saw, and "
        "quality falls."
    )
    diagnosis = (
        "Compare the length that is asked for with the one in the configuration, and see from where on "
        "predictions are worse: `embedwatch positions MODEL --length N --deep`."
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
        length, usable = snapshot.number("position_length") or 0, snapshot.number("position_usable_length") or 0
        return f"{measurement.number:,.0f} of {length:,.0f} positions lie beyond the {usable:,.0f} that it is made for."
