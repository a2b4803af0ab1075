"""Tokens inside a model must differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import LIVE, ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.levels import earlier_values
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LEAST_ROWS = 64
LEAST_DISTINCT = 16
"""One token, or a text of a few, repeated for ever is no collapse."""
WARN, FAIL = 0.1, 0.04
LEARNED = 2_000
"""Step from which on a training has learned more than how frequent tokens are."""


class HiddenCollapse(ThresholdCheck):
    """Inside a model, tokens do not all have the same vector, apart from a few huge dimensions or rows.

    With a common part of k times what tells rows apart the value is 1 / (1 + k²): it warns from k = 3 and fails from
    k = 5 on. Collapse and a large constant vector added to every row are the same thing to the layers above, which
    normalise their input, and both are found. Where the mean of the rows is next to zero, drawing them to it only
    makes them shorter: that is no collapse, and only a reference shows it.

    Language models first learn how frequent tokens are, for which one vector at all places is enough: at some time in
    their first hundred steps the last layers of healthy ones come down to 0.07. Up to step 2,000 it therefore does not
    warn where an earlier window was sound; it fails as ever.
    """

    name = "hidden_collapse"
    title = "what tokens do not share"
    metric = "dimension_spread_ratio"
    roles = LIVE
    weighs = ("distinct_rows",)
    limit = Limit(warn=WARN, fail=FAIL, side="below")
    exhibits = ("largest_dimensions",)
    severity = "critical"
    meaning = (
        "In the median dimension nearly all of a token's value is common to all tokens; what tells them apart is lost."
    )
    impact = (
        "Layers above see the same vector for every token, the loss stops falling, and low precision erases the rest."
    )
    diagnosis = (
        "First rule out input that is all alike: one token repeated, or padding that is not masked. Then find the "
        "first place, from the embedding up, at which it fails: its weights, its normalisation or its input are broken."
    )
    mitigation = (
        "Go back to the last checkpoint that was sound; lower the learning rate, warm up longer, look at the gains and "
        "biases of the normalisation before that place. In serving compare the weights and their precision with the "
        "model's origin."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the value beside the limit, which does not warn while a training learns how frequent tokens are."""
        evidence = super().evaluate(snapshot, reference, history)
        value, step = evidence.value, snapshot.provenance.step
        if value is None or not FAIL < value <= WARN or step is None or step >= LEARNED:
            return evidence
        if max(earlier_values(history, snapshot, self.metric), default=0.0) <= WARN:
            return evidence
        normal = f"{evidence.reason.removesuffix('.')}, which is normal for a time up to step {LEARNED:,}."
        return replace(evidence, limit=Limit(fail=FAIL, side="below"), reason=normal)

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words."""
        del snapshot
        return f"In the median dimension {measurement.number:.2%} of the mean square is not common to all rows."

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which all may come from one short text."""
        del snapshot
        return LEAST_ROWS

    def minimum_distinct(self, snapshot: Snapshot) -> int:
        """Return the number of distinct rows below which the input is one word, repeated."""
        del snapshot
        return LEAST_DISTINCT
