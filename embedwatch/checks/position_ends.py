"""Start and end of a text are two places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

OVER_NEIGHBOUR = "position_ends_over_neighbour_ratio"
AS_NEIGHBOURS = 0.5
"""Ends that attend to each other less than this share of what neighbours do are two places."""


class PositionEnds(ThresholdCheck):
    """End and start get less than 3 times the attention of middle distances, or less than half of neighbours'."""

    name = "position_ends"
    title = "attention between end and start over middle distances"
    metric = "position_ends_over_middle_ratio"
    weighs = (OVER_NEIGHBOUR,)
    roles = ("positions",)
    limit = Limit(warn=3.0)
    meaning = "The model treats the end of a text and its start as neighbours: places have come round."
    impact = "What stands at the start is mixed into the end, and the other way round, in every long text."
    diagnosis = (
        "See position_attention for the distance at which attention comes back, and position_kernel or position_lags "
        "for a period of the same length."
    )
    mitigation = (
        "Use positions without that period: RoPE with another θ or a scaling, or ALiBi. Until then use texts shorter "
        "than the distance, in chunks with separators."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether attention was told."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the ratio; nothing is wrong where neighbours get far more."""
        evidence = super().evaluate(snapshot, reference, history)
        neighbour = snapshot.number(OVER_NEIGHBOUR)
        return replace(evidence, limit=None) if neighbour is not None and neighbour < AS_NEIGHBOURS else evidence

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return both ratios."""
        neighbour = snapshot.number(OVER_NEIGHBOUR)
        beside = "" if neighbour is None else f", {neighbour:.3g} times that of neighbours"
        return f"End and start get {measurement.number:.3g} times the attention of middle distances{beside}."
