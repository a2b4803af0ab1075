"""Texts should lead to most tokens."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class UnreachableTokens(ModelCheck):
    """Some text is cut into nearly each token of the vocabulary.

    1.1 % are not reached in MiniLM, which takes Chinese characters and signs apart before it looks for pieces; 0.02 %
    in multilingual-e5-small, none in SmolLM2.
    """

    name = "unreachable_tokens"
    title = "unreachable tokens"
    metric = "unreachable_tokens_ratio"
    roles = ("vocabulary",)
    limit = Limit(warn=0.05, fail=0.5)
    exhibits = ("unreachable_tokens",)
    meaning = "Many tokens exist that no text is ever cut into: the vocabulary does not fit how texts are cut."
    impact = "Rows are wasted; worse, texts are cut otherwise than in training, where those tokens were used."
    diagnosis = (
        "Look at the tokens named: capitals under a tokenizer that lowers its input, accents under one that drops "
        "them, merges that are missing? Compare tokenizer.json with that of the training."
    )
    mitigation = "Restore the tokenizer that the model was trained with, its normalisation and its merges."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share."""
        del snapshot
        return f"No text was found that leads to {measurement.number or 0:.2%} of the tokens in use."
