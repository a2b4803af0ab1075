"""Greedy decoding: loops are usual, and said."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

METRIC = "generation_loops_ratio"


class GenerationGreedy(Check):
    """Greedy decoding leaves its loops more often than not.

    A few loops are usual: SmolLM2 ends 2 of 8 texts of 128 tokens in one, and that is no finding. It warns where three
    quarters of the texts do.

    References: Holtzman et al. 2020, "The curious case of neural text degeneration", https://arxiv.org/abs/1904.09751;
    Xu et al. 2022, "Learning to break the loop", https://arxiv.org/abs/2206.02369.
    """

    name = "generation_greedy"
    title = "loops of greedy decoding"
    reads = (METRIC,)
    weighs = ("generation_loop_period", "generation_probability")
    roles = ("generation",)
    limit = Limit(warn=0.75)
    exhibits = ("generated_texts", "generation_by_depth")
    meaning = (
        "The likeliest token each time leads into a loop: each repeat makes the next one more likely, and nothing that "
        "is drawn at random breaks it."
    )
    impact = "Where the model is used with temperature 0, long answers end in repetition."
    diagnosis = (
        "Small models do this, and large ones in long texts. Are sampled texts sound, then it is the decoding. Does "
        "the probability of what is written rise with depth, and attention stay on the latest tokens, the loop feeds "
        "itself."
    )
    mitigation = (
        "Sample with top-p 0.9 to 0.95 at a temperature of 0.7 to 1; or keep greedy decoding and add a repetition "
        "penalty of 1.1 to 1.3, or no_repeat_ngram_size 4, and end texts sooner."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether texts were written greedily."""
        return super().applies(snapshot) and snapshot.number(METRIC, decoding="greedy") is not None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of texts that end in a loop, beside that of sampled ones."""
        del reference, history
        value, rows = snapshot.number(METRIC, decoding="greedy"), snapshot.provenance.rows
        sampled = snapshot.number(METRIC, decoding="sampled")
        chances = [snapshot.number("generation_probability", decoding="greedy", depth=at) for at in ("early", "late")]
        words = f"{value or 0.0:.0%} of the greedy texts end in a loop"
        if sampled is not None:
            words += f", of the sampled ones {sampled:.0%}"
        if None not in chances:
            words += f"; the probability of what is written goes from {chances[0]:.2f} early to {chances[1]:.2f} late"
        return Evidence(value, self.limit, rows, f"{words}.", METRIC, exhibits=self.exhibits)
