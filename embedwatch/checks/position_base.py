"""Weights were trained with the θ that they are used with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

SURE = 4.0
"""Standard errors by which a saving must exceed zero."""


class PositionBase(ThresholdCheck):
    """No other θ makes the model predict better than the one of its configuration.

    A θ ten times too small or too large cost SmolLM2 0.06 and 0.12 nats over 512 tokens, a hundred times 0.4 and more.
    """

    name = "position_base"
    title = "loss that another θ saves, in nats"
    metric = "position_base_gain_nats"
    weighs = ("position_base", "position_base_of_weights")
    roles = ("positions",)
    limit = Limit(warn=0.03, fail=0.3)
    severity = "critical"
    meaning = "The weights predict better with another θ than the configuration states: they were trained with that."
    impact = (
        "Every distance looks like another one; nothing crashes, and quality is lost in all texts, the longer the more."
    )
    diagnosis = "Compare rope_theta in config.json with that of the model's origin."
    mitigation = (
        "State the θ that the weights were trained with in config.json (rope_parameters, rope_theta), and load "
        "the model anew."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the loss that is saved; nothing is wrong where it may be chance."""
        evidence = super().evaluate(snapshot, reference, history)
        sure = evidence.value is None or evidence.error is None or evidence.value > SURE * evidence.error
        return evidence if sure else replace(evidence, limit=None)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        stated, best = snapshot.number("position_base"), snapshot.number("position_base_of_weights")
        what = "" if stated is None else f", where the configuration states {stated:,.0f}"
        better = "" if best is None else f" with θ near {best:,.0f}{what}"
        return f"The weights predict better by {measurement.number:.3g} nats{better}."
