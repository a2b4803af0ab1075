"""Sinks must not take more than they did."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import LEAST_QUERIES, Check
from embedwatch.core.history import History
from embedwatch.core.levels import early_level
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

METRIC = "attention_first_ratio"
SETTLED = 5_000
"""Step from which on a model has the sinks that it will have: they emerge within the first few thousand."""


class AttentionSinks(Check):
    """The first token takes no more of a layer's attention than it took before.

    Sinks are normal: in the layers of three trained models the first token takes between 0.01 and 0.74, and they emerge
    in the first thousands of steps of every training. So the share itself is no finding; what is judged is how much it
    rose above its level early in the course, counted from step 5,000. Without such a past nothing can be wrong.

    References: Xiao et al. 2023, "Efficient streaming language models with attention sinks" (arXiv 2309.17453); Gu et
    al. 2024, "When attention sink emerges in language models" (arXiv 2410.10781).
    """

    name = "attention_sinks"
    title = "growth of attention sinks"
    reads = (METRIC,)
    roles = ("attention",)
    limit = Limit(warn=0.25)
    exhibits = ("attention_map",)
    meaning = "The first token takes much more of this layer's attention than it did."
    impact = "Heads that give all to a sink do nothing: what they contributed before is gone."
    diagnosis = (
        "Did the inputs change: other first tokens, a template, padding that is taken for the first token? In "
        "training, when did it begin, and did the norm of the first token grow with it? In serving compare weights and "
        "precision with the model's origin."
    )
    mitigation = (
        "Give inputs the first token that the model was trained with, and mask padding; in training go back to a "
        "checkpoint before the rise and lower the learning rate."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return how much the share rose; the share itself, without a limit, where no past is known."""
        del reference
        rows, measurement = snapshot.provenance.rows, snapshot.get(METRIC, heads="mean")
        share = None if measurement is None else measurement.number
        if share is None or measurement is None or rows < LEAST_QUERIES:
            short = (
                "Not enough data for a value."
                if share is None
                else f"{rows:,} rows are too few, needs {LEAST_QUERIES}."
            )
            return Evidence(None, self.limit, rows, short, METRIC)
        words = f"The first token takes {share:.1%} of attention"
        level = early_level(history, snapshot, METRIC, since=SETTLED, heads="mean")
        if level is None:
            return Evidence(share, None, rows, f"{words}; there is no settled past to compare with.", METRIC)
        told = f"{words}; early in this course it took {level:.1%}."
        return Evidence(share - level, self.limit, rows, told, METRIC, error=measurement.error, exhibits=self.exhibits)
