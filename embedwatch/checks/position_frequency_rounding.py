"""Frequencies are kept in float32."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionFrequencyRounding(ThresholdCheck):
    """Frequencies in the model are precise enough for the length: `L max |ω - round(ω)|` stays below 0.1 rad."""

    name = "position_frequency_rounding"
    title = "phase off by rounding"
    metric = "position_phase_error"
    weighs = ("position_length",)
    roles = ("positions",)
    limit = Limit(fail=0.1)
    exhibits = ("position_parts",)
    meaning = (
        "Frequencies of positions were rounded to half precision: the buffer inv_freq went along when the model "
        "was cast."
    )
    impact = (
        "The error grows with the position: with bfloat16 5 rad at 4,096 tokens for heads of 128, so that slow "
        "waves stand anywhere."
    )
    diagnosis = (
        "See the type of the buffer inv_freq: model.bfloat16(), model.half() and .to(dtype) cast buffers, "
        "from_pretrained(dtype=…) does not."
    )
    mitigation = (
        "Load with from_pretrained(dtype=…), or make inv_freq anew in float32 after the cast; keep the product of "
        "positions and frequencies in float32."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        length = snapshot.number("position_length")
        at = "" if length is None else f" at {length:,.0f} tokens"
        return f"Rounded frequencies put the worst wave off by {measurement.number:.3g} rad{at}."
