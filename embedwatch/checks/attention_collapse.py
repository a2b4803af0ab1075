"""Attention must not collapse to single keys."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import LEAST_QUERIES, Check
from embedwatch.core.history import History
from embedwatch.core.levels import early_level
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

METRIC = "attention_inner_entropy_ratio"
WARN, FAIL = 0.2, 0.1
"""The lowest layer of three trained models has 0.46; with its logits four times as large it has 0.12."""
LOST, MOST_LOST = 1 / 2, 1 / 5
"""Parts of the early level that warn and fail, whatever is lost before that."""
HIGHEST = 0.35
"""A new model is at 1 and learns to look: no fall to more than this is a collapse."""


class AttentionCollapse(Check):
    """The heads of a layer do not give all attention to single keys.

    Judged is the mean entropy between the first and the last token, over that of an even look: those two take most in
    many sound heads, and single heads that look at one key, such as the previous one, are sound as well. It warns below
    0.2 and fails below 0.1. Against its own past it warns where half of the early level is lost and fails at a fifth
    of it, but never above 0.35 and half of that: training takes a model from 1 to 0.5.

    References: Zhai et al. 2023, "Stabilizing Transformer training by preventing attention entropy collapse"
    (arXiv 2303.06296).
    """

    name = "attention_collapse"
    title = "entropy of attention"
    reads = (METRIC,)
    roles = ("attention",)
    limit = Limit(warn=WARN, fail=FAIL, side="below")
    exhibits = ("attention_entropy", "attention_map")
    severity = "critical"
    meaning = "Each query of the layer looks at one key, whatever else is there."
    impact = (
        "Softmaxes that are saturated pass next to no gradient to queries and keys: the loss oscillates or diverges, "
        "often within a few hundred steps."
    )
    diagnosis = (
        "Look at the largest logit and the spread of logits of the layer: do they grow? Which heads fell, and at which "
        "step? Did the learning rate rise, or warm-up end, just before? In serving compare the scale of logits, the "
        "precision and the weights of query and key with the model's origin."
    )
    mitigation = (
        "Go back to a checkpoint before the fall; lower the learning rate or warm up longer, normalise queries and "
        "keys (QK-norm), reparametrise their weights (σReparam), or cap logits."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the entropy beside a limit that follows the early level."""
        del reference
        rows, measurement = snapshot.provenance.rows, snapshot.get(METRIC, heads="mean")
        if measurement is None or measurement.number is None:
            return Evidence(None, self.limit, rows, "Not enough data for a value.", METRIC)
        if rows < LEAST_QUERIES:
            return Evidence(None, self.limit, rows, f"{rows:,} rows are too few, needs {LEAST_QUERIES:,}.", METRIC)
        level = early_level(history, snapshot, METRIC, heads="mean")
        value = measurement.number
        past = "" if level is None else f"; early in this course it was {level:.2f}"
        return Evidence(
            value,
            _limit(level),
            rows,
            f"Between first and last token attention has {value:.1%} of the entropy of an even look{past}.",
            METRIC,
            error=measurement.error,
            exhibits=self.exhibits,
        )


def _limit(level: float | None) -> Limit:
    """Return the limit that holds where the early level was this."""
    if level is None:
        return AttentionCollapse.limit
    warn = max(WARN, min(HIGHEST, LOST * level))
    return Limit(warn=warn, fail=min(warn, max(FAIL, min(HIGHEST / 2, MOST_LOST * level))), side="below")
