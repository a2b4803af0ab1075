"""One step must not move a row by a large part of its length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

FIRST_STEP = 1
"""Up to this step Adam moves every entry by the learning rate, whatever the gradient: only the fail limit counts."""


class TokenUpdates(ThresholdCheck):
    """Rows of the table move by a small part of their length in one step.

    With Adam an entry moves by the learning rate in a first step, a row by √D times that: a table of N(0, 0.02²) and a
    rate of 0.002 give 0.1, and are healthy. So the first step cannot warn, only fail. A rate a hundred times too high
    shows for some ten or twenty steps; then the rows have grown to fit it, and drift and norms tell.
    """

    name = "token_updates"
    title = "movement of rows in one step"
    metric = "token_update_ratio"
    roles = ("tokens",)
    limit = Limit(warn=0.08, fail=0.3)
    exhibits = ("fastest_tokens",)
    meaning = "Each step moves rows of the embedding table by a large part of their own length."
    impact = "What the rows knew is overwritten in a few steps; in fine-tuning, what was paid for in pre-training."
    diagnosis = (
        "Compare the learning rate with the size of an entry of the table (norm / √D): a hundredth of it is fast. Is "
        "the table in a parameter group of its own, is there a warm-up?"
    )
    mitigation = (
        "Lower the learning rate, or that of the table alone; warm up over some hundred steps; start again from "
        "weights before this."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return mean and largest movement."""
        largest = snapshot.number("token_update_max_ratio")
        most = "" if largest is None else f", {largest:.2g} at most"
        return f"Rows of the table move by {measurement.number:.2g} of their length in one step{most}."

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the movement beside the limit; beside that of `fail` alone at the first step."""
        evidence, step = super().evaluate(snapshot, reference, history), snapshot.provenance.step
        return (
            replace(evidence, limit=Limit(fail=self.limit.fail))
            if step is not None and step <= FIRST_STEP
            else evidence
        )
