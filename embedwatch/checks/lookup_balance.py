"""Neither tokens nor positions may drown the others in a loaded model."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelRangeCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

LOW, HIGH = 0.2, 6.0


class LookupBalance(ModelRangeCheck):
    """Tokens and positions of a loaded model are of one size where they are summed.

    The limits are those of `position_balance`, which judges models at work. Where a factor √D more or less would bring
    the quotient within them, that is said.
    """

    name = "lookup_balance"
    title = "tokens over positions, loaded"
    metric = "lookup_position_ratio"
    roles = ("scale",)
    limit = Limit(warn=HIGH, fail=25)
    floor = Limit(warn=LOW, fail=0.05, side="below")
    exhibits = ("input_sizes",)
    meaning = "Tokens are far smaller or far larger than the positions that are added to them."
    impact = (
        "Where positions drown the tokens, the model sees where but not what; where tokens drown the positions, it "
        "cannot tell the order of words. Neither crashes."
    )
    diagnosis = (
        "Was √D left out or applied twice, in the code or in a conversion of the table? Are positions those of this "
        "model?"
    )
    mitigation = "Apply √D exactly once, or draw tokens and positions with the same deviation; then train anew."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return both sizes, and whether one factor √D explains them."""
        quotient, positions = measurement.number or 0.0, snapshot.number("position_rms")
        dimension = snapshot.provenance.dimension
        if positions is None:
            return ""
        if positions == 0:
            return "What is added for positions is all zero."
        said = f"Entries of tokens are {quotient:.2g} times as large as those of positions, {positions:.3g}"
        root = dimension**0.5 if dimension else 0.0
        if root and quotient <= LOW and LOW < quotient * root < HIGH:
            return f"{said}: √D seems to be left out, with it they would be {quotient * root:.2g} times as large."
        if root and quotient >= HIGH and LOW < quotient / root < HIGH:
            return f"{said}: √D seems to be applied twice, once would make it {quotient / root:.2g}."
        return f"{said}."
