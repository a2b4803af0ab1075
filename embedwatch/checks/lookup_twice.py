"""The factor √D belongs in one place of a loaded model."""

from __future__ import annotations

from dataclasses import replace

from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

HARMLESS = 2.0
"""Entries up to this size are what a well scaled input has, whatever the table is like."""


class LookupTwice(ModelCheck):
    """Between a row of the table and the first layer of a loaded model lies the factor √D at most once."""

    name = "lookup_twice"
    title = "factors √D, loaded"
    metric = "lookup_scale_power"
    roles = ("scale",)
    limit = Limit(warn=1.5, fail=1.9)
    exhibits = ("input_sizes",)
    meaning = "Tokens are multiplied by more than one √D on their way to the first layer: it is applied twice."
    impact = "Layers add to a stream that drowns them, and positions are lost; it does not crash, it trains badly."
    diagnosis = "Look for the factor √D both in the embedding module and in the code that calls it."
    mitigation = "Apply √D exactly once, then train anew."

    def evaluate(self, snapshot: Snapshot, reference: object = None, history: History | None = None) -> Evidence:
        """Return the number of factors; nothing is wrong with an input of usual size."""
        evidence = super().evaluate(snapshot, reference, history)
        size = snapshot.number("entering_rms")
        return evidence if size is None or size > HARMLESS else replace(evidence, limit=None)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the factor and the size of what enters."""
        factor, size = snapshot.number("lookup_factor"), snapshot.number("entering_rms")
        entries = "" if size is None else f"; entries of size {size:.3g} enter the first layer"
        times = "" if factor is None else f" by {factor:.4g}, which is"
        return f"Tokens are multiplied{times} √D to the power {measurement.number:.2g}{entries}."
