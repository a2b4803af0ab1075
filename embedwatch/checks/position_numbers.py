"""Each place has a number and a code of its own."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionNumbers(ThresholdCheck):
    """No place has the code of the next one, as the model itself makes them."""

    name = "position_numbers"
    title = "places that have the code of the next"
    metric = "position_shared_ratio"
    weighs = ("position_first_shared", "position_numbers_bits")
    roles = ("positions",)
    limit = Limit(warn=1e-9, fail=0.01)
    exhibits = ("position_parts",)
    severity = "critical"
    meaning = (
        "Neighbouring places have one and the same code: numbers of positions were rounded, to bfloat16 or "
        "float16, before codes were made of them."
    )
    impact = (
        "bfloat16 counts to 256, then in steps of 2, 4, 8: of 4,096 places 769 are left. Words trade places, and "
        "the end of a long text is one spot."
    )
    diagnosis = (
        "Look for position ids, arange or a cache of positions in the model's own type, and for products of "
        "positions and frequencies under autocast."
    )
    mitigation = (
        "Keep position ids whole numbers, or float32, up to the sine; switch autocast off around the product. "
        "Rounding cosine and sine afterwards does no harm."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        first, bits = snapshot.number("position_first_shared"), snapshot.number("position_numbers_bits")
        cause = {8: ", as numbers rounded to bfloat16 are", 11: ", as numbers rounded to float16 are"}.get(
            int(bits or 0), ""
        )
        start = "" if first is None else f", from position {first:,.0f} on"
        return f"{measurement.number:.1%} of the places have the code of the next one{start}{cause}."
