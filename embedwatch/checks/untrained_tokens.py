"""Few tokens in use should be untrained."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class UntrainedTokens(ModelCheck):
    """Few of the tokens that texts lead to have rows that look as if they had never been trained.

    1.0 % in MiniLM, whose vocabulary holds letters of scripts that its training lacked, 0.03 % in SmolLM2, none in
    multilingual-e5-small; Land & Bartolo (2024) found 0.1 to 1 % in most language models.
    """

    name = "untrained_tokens"
    title = "untrained tokens"
    metric = "untrained_tokens_ratio"
    roles = ("vocabulary",)
    limit = Limit(warn=0.02, fail=0.2)
    exhibits = ("untrained_tokens",)
    meaning = (
        "Many tokens that texts lead to were never trained: their rows are as they were drawn, or as all unused ones."
    )
    impact = (
        "Texts with such tokens get vectors that say nothing, and a model that writes stumbles over them: it cannot "
        "repeat them, or says something unrelated."
    )
    diagnosis = (
        "Look at the tokens named: a script or a format that the training data lacked? Was the tokenizer made from "
        "other texts, or exchanged for another one?"
    )
    mitigation = (
        "Train on texts that hold them; map them to other tokens before the model; for a new vocabulary start rows "
        "from the mean of the pieces that they were cut into."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the number, and what it was measured against."""
        count, known = snapshot.number("untrained_tokens"), snapshot.number("known_unused_tokens")
        against = f", beside {known:,.0f} that are surely unused" if known else ""
        return (
            f"{count or 0:,.0f} tokens look untrained, {measurement.number:.2%} of those that texts lead to{against}."
        )
