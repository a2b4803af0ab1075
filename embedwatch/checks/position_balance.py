"""Neither tokens nor positions may drown the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embedwatch.core.check import RangeCheck
from embedwatch.core.history import History
from embedwatch.core.levels import earlier_values
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit


class PositionBalance(RangeCheck):
    """Tokens and positions are of one size where they are summed.

    The factor √D left out makes the quotient √D times smaller than it should be, applied twice √D times larger. A table
    of positions that is all zero counts as a millionth of the tokens; in the first window of a training it is not
    judged, since some begin like this.
    """

    name = "position_balance"
    title = "tokens over positions"
    metric = "token_position_ratio"
    roles = ("tokens",)
    limit = Limit(warn=6, fail=25)
    floor = Limit(warn=0.2, fail=0.05, side="below")
    meaning = "Tokens are far smaller or far larger than the positions that are added to them."
    impact = (
        "Where positions drown the tokens, the model sees where but not what, and learns slowly; where tokens drown "
        "the positions, it cannot tell the order of words. Neither crashes."
    )
    diagnosis = (
        "Look for the factor √D between lookup and sum: sinusoidal positions of size 0.71 need tokens near 1, so a "
        "table from N(0, 1/D) needs it once; learned positions should start at the size of the tokens. Where positions "
        "are all zero: was their table lost in a conversion, or left out of the optimizer?"
    )
    mitigation = (
        "Apply √D exactly once, or draw tokens and positions with the same standard deviation; then train anew."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether positions are added at all: rotary and relative ones are not."""
        return super().applies(snapshot) and snapshot.number("position_scale_rms") is not None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the quotient; without a limit for zeros with which a training begins."""
        evidence = super().evaluate(snapshot, reference, history)
        zero = snapshot.number("position_scale_rms") == 0.0
        begins = snapshot.provenance.training_step is not None and not earlier_values(history, snapshot, self.metric)
        return replace(evidence, limit=None) if zero and begins else evidence

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return both sizes."""
        tokens, positions = snapshot.number("token_scale_rms"), snapshot.number("position_scale_rms")
        if tokens is None or positions is None:
            return ""
        if positions == 0.0:
            return f"Entries of tokens are of size {tokens:.3g}, and the table of positions is all zero."
        quotient = f"{measurement.number:.2g} to 1"
        return f"Entries of tokens are of size {tokens:.3g}, those of positions {positions:.3g}: {quotient}."
