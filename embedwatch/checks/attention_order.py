"""Attention must know where tokens stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import LEAST_QUERIES, ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.levels import earlier_values
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

COMPARED, UNPLACED = "attention_compared_rows_total", "attention_unplaced_rows_total"


class AttentionOrder(ThresholdCheck):
    """The same token does not have the same logit wherever it stands.

    Equal logits of near keys are as good as impossible where positions reach attention, and come wherever a token
    repeats where they do not. An encoder without positions sees a bag of words in every layer. A decoder shows it in
    its first layer: it can learn order from the causal mask, and some are made so. The first window of a training is
    not judged: positions that are learned from zero begin like this. Nor is a causal model of which no part holds
    positions (NoPE): one that has such a part and makes no use of it looks the same in numbers, and is warned of.

    References: Kazemnejad et al. 2023, "The impact of positional encoding on length generalization"
    (https://arxiv.org/abs/2305.19466).
    """

    name = "attention_order"
    title = "queries that cannot tell places"
    metric = "attention_tied_rows_ratio"
    weighs = (COMPARED, UNPLACED)
    roles = ("attention",)
    limit = Limit(warn=0.02)
    meaning = "The layer gives the same token the same logit at different places: no position reaches its attention."
    impact = (
        "An encoder works like a bag of words, whatever its depth. A decoder has the causal mask alone to tell an "
        "order, and learns to look at neighbours late. The loss falls all the same, so nothing else tells."
    )
    diagnosis = (
        "The model has a part that holds positions, or sees what comes after. Are position ids all zero, is the table "
        "of positions zero or left out, was the rotation or the bias lost in a conversion or a faster kernel?"
    )
    mitigation = (
        "Restore the positions from the model's origin; a model that was trained without them has to be trained anew."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether logits could be compared."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of rows with equal logits; without a limit in the first window of a course."""
        compared = int(snapshot.number(COMPARED) or 0)
        if compared < LEAST_QUERIES:
            short = f"{compared:,} rows that could be compared are too few, needs {LEAST_QUERIES:,}."
            return Evidence(None, self.limit, snapshot.provenance.rows, short, self.metric)
        evidence = super().evaluate(snapshot, reference, history)
        if compared == int(snapshot.number(UNPLACED) or 0):
            made = "No part of the model holds positions, and no query sees what comes after it: it is made so (NoPE)."
            return replace(evidence, limit=None, reason=f"{evidence.reason} {made}")
        begins = snapshot.provenance.training_step is not None and not earlier_values(history, snapshot, self.metric)
        return replace(evidence, limit=None) if begins else evidence

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words."""
        del snapshot
        return f"{measurement.number:.1%} of the queries give two near keys the same logit."
