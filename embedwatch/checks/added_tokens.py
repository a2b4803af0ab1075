"""Tokens that were added must be trained."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class AddedTokens(ModelCheck):
    """No token that was added to the vocabulary was left as the resize made it.

    A resize draws new rows, or puts them on the mean of the table. Special tokens are not judged: one for padding needs
    no training.
    """

    name = "added_tokens"
    title = "added tokens, untrained"
    metric = "untrained_added_tokens"
    roles = ("vocabulary",)
    limit = Limit(warn=1)
    exhibits = ("untrained_tokens",)
    meaning = "Tokens were added to the vocabulary, and their rows are still as the resize made them."
    impact = "Texts that hold them get worse vectors than before they were added, when they were cut into known pieces."
    diagnosis = (
        "Was the table trained after the resize, or frozen, or was another checkpoint saved? Look at their rows."
    )
    mitigation = (
        "Train with texts that hold them, or start each row from the mean of its old pieces; else take them out."
    )

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the number."""
        del snapshot
        count = measurement.number or 0
        return f"{count:,.0f} added token{' looks' if count == 1 else 's look'} untrained."
