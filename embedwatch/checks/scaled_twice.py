"""The factor √D belongs in one place."""

from __future__ import annotations

from dataclasses import replace

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

TWICE = 1.9
"""Two factors √D, less what training or a table of another size makes of them."""
HARMLESS = 2.0
"""Entries up to this size are what a normalised or well scaled input has, whatever the table is like."""


class ScaledTwice(ThresholdCheck):
    """Between the rows of the table and the first layer lies the factor √D at most once."""

    name = "scaled_twice"
    title = "factors √D before the first layer"
    metric = "input_scale_power"
    roles = ("tokens",)
    limit = Limit(warn=TWICE)
    meaning = "Vectors enter the first layer D times as large as the rows of the table: √D seems to be applied twice."
    impact = (
        "Layers add to a stream that drowns them, and positions that are added are lost; it does not crash, it trains "
        "badly."
    )
    diagnosis = "Look for the factor √D both in the embedding module and in the code that calls it."
    mitigation = "Apply √D exactly once, then train anew."

    def evaluate(self, snapshot: Snapshot, reference: object = None, history: History | None = None) -> Evidence:
        """Return the number of factors; nothing is wrong with an input of usual size."""
        evidence = super().evaluate(snapshot, reference, history)
        size = snapshot.number("input_scale_rms")
        return evidence if size is None or size > HARMLESS else replace(evidence, limit=None)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the size of what enters."""
        size = snapshot.number("input_scale_rms")
        entries = "" if size is None else f", with entries of size {size:.3g}"
        return f"What enters the first layer is scaled by √D to the power {measurement.number:.2g}{entries}."
