"""Heads must look somewhere once they have learned to."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import LEAST_QUERIES, Check
from embedwatch.core.history import History
from embedwatch.core.levels import earlier_values
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

METRIC = "attention_uniform_heads_ratio"
LEARNED = 2_000
"""Step from which on heads must have learned to look somewhere; small models need a few hundred."""


class AttentionUniform(Check):
    """Heads do not look everywhere alike, once training has gone on or they have looked somewhere before.

    In a new model all heads do: that is no finding in the first 2,000 steps of a training, unless no head did in an
    earlier window. A model that serves, and one of which no step is known, is taken for trained. It warns where half of
    a layer's heads are even, and fails where all are.

    References: Clark et al. 2019, "What does BERT look at?" (arXiv 1906.04341): heads that attend broadly; Zhai et al.
    2023 (arXiv 2303.06296): entropy in training.
    """

    name = "attention_uniform"
    title = "heads that look everywhere alike"
    reads = (METRIC,)
    roles = ("attention",)
    limit = Limit(warn=0.5, fail=1.0)
    exhibits = ("attention_entropy",)
    meaning = "Heads of this layer give every key the same share: they average the text, whatever it says."
    impact = "The layer cannot choose: it works like a bag of words, and most of its parameters do nothing."
    diagnosis = (
        "Is the spread of logits next to 0? Then queries or keys are: look for weights that are zero or decayed away, "
        "an adapter that replaced them, logits that are scaled down twice, or inputs that are all alike. Otherwise ask "
        "whether the layer gets a gradient at all."
    )
    mitigation = (
        "Restore or initialise the query and key weights, correct the scale of the logits, lower weight decay on them, "
        "check that they are trained; in serving compare the weights with the model's origin."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of even heads; without a limit while that is normal."""
        del reference
        rows, share = snapshot.provenance.rows, snapshot.number(METRIC)
        if share is None or rows < LEAST_QUERIES:
            short = (
                "Not enough data for a value."
                if share is None
                else f"{rows:,} rows are too few, needs {LEAST_QUERIES}."
            )
            return Evidence(None, self.limit, rows, short, METRIC)
        step = snapshot.provenance.training_step
        once = min(earlier_values(history, snapshot, METRIC), default=1.0)
        is_new = step is not None and step < LEARNED and once > 0
        words = f"{share:.0%} of the heads look everywhere alike"
        told = f"{words}, which is normal up to step {LEARNED:,}." if is_new else f"{words}."
        return Evidence(share, None if is_new else self.limit, rows, told, METRIC, exhibits=self.exhibits)
