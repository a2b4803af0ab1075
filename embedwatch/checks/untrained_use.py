"""A corpus should hardly hold untrained tokens."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class UntrainedUse(ModelCheck):
    """Hardly any token of the corpus that was given has a row that looks untrained.

    In English documentation there was none in 75,776 tokens of MiniLM, nor in 72,571 of SmolLM2.
    """

    name = "untrained_use"
    title = "untrained tokens in the corpus"
    metric = "untrained_use_ratio"
    roles = ("vocabulary",)
    limit = Limit(warn=0.001, fail=0.02)
    exhibits = ("untrained_tokens",)
    meaning = "The texts hold tokens that this model was never trained on."
    impact = "Their vectors say little where such tokens come: search misses them, and a model that writes stumbles."
    diagnosis = "Look at the tokens that come often in the corpus: a language, a script, a format that the model lacks?"
    mitigation = "Choose a model that knows these texts, train on them, or normalise them before they are encoded."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share."""
        number = snapshot.number("corpus_tokens") or 0
        return f"{measurement.number or 0:.3%} of {number:,.0f} tokens in the corpus look untrained."
