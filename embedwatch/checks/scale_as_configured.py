"""Tokens must be scaled as the configuration says."""

from __future__ import annotations

from embedwatch.core.measurement import Measurement
from embedwatch.core.model_check import ModelRangeCheck
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class ScaleAsConfigured(ModelRangeCheck):
    """The factor between table and first layer is the one that the configuration promises: √D, none, or a number.

    Judged is the difference in factors √D: -1 where √D was left out, 1 where it is applied once too often. What is seen
    is exact to some 10⁻³, so the limits only leave room for half precision.
    """

    name = "scale_as_configured"
    title = "factor √D as configured"
    metric = "lookup_scale_gap"
    roles = ("scale",)
    limit = Limit(warn=0.1, fail=0.5)
    floor = Limit(warn=-0.1, fail=-0.5, side="below")
    exhibits = ("input_sizes",)
    meaning = (
        "Tokens enter the model with another factor than its configuration promises: √D is left out or applied twice."
    )
    impact = (
        "Every vector in the model differs from those it was trained with. It does not crash: positions drown the "
        "tokens, or tokens the positions, and answers are worse for no visible reason."
    )
    diagnosis = (
        "Look for the factor √D in the embedding module and in the code that calls it, and for a conversion that moved "
        "it into the table, or out of it."
    )
    mitigation = "Apply √D exactly once, where the configuration says so; divide a table by √D that has it already."

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return what is promised and what is applied."""
        gap, factor = measurement.number or 0.0, snapshot.number("lookup_factor")
        promised = snapshot.number("lookup_scale_power_configured")
        if factor is None or promised is None:
            return ""
        said = f"The configuration promises {_times(promised)}, and tokens are multiplied by {factor:.4g}"
        if abs(gap) < 0.1:
            return f"{said}, as it should be."
        left = promised > 0.5 and gap < 0
        return (
            f"{said}: √D is {'left out' if left else 'applied once too often' if gap > 0.5 else 'not what is applied'}."
        )


def _times(power: float) -> str:
    return "√D once" if abs(power - 1) < 0.1 else "no factor" if abs(power) < 0.1 else f"√D to the power {power:.2g}"
