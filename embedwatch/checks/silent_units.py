"""Inner units should speak on some text."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

FEWEST = 200
"""Tokens below which units that are needed rarely seem silent."""


class SilentUnits(ModelCheck):
    """Most inner units of the layers speak on some token of the texts that were given.

    All do in MiniLM on 270 tokens, and in SmolLM2 on 231. Under a ReLU many units speak rarely, so the limit is wide.
    """

    name = "silent_units"
    title = "silent units"
    metric = "silent_unit_ratio"
    roles = ("layers",)
    limit = Limit(warn=0.5, fail=0.9)
    meaning = (
        "Most inner units of the layers say nothing to any of the texts: they are dead, or the texts are all of one "
        "kind."
    )
    impact = "The layers do less than their size; dead units get no gradient, and do not come back."
    diagnosis = "Give more, and more different, texts. Were the rate or biases so large that a ReLU never opens again?"
    mitigation = "Lower the rate at the start, draw biases at 0, or use an activation that lets gradients through."

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether enough tokens were read."""
        return super().applies(snapshot) and (snapshot.number("tokens_read") or 0) >= FEWEST

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share and the number of tokens."""
        read = snapshot.number("tokens_read") or 0
        return f"{measurement.number or 0:.1%} of the inner units stayed silent over {read:,.0f} tokens."
