"""Frequencies in a model are those of its configuration."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit

SAME = 0.02
"""Relative difference below which two θ are one."""


class PositionFrequencies(ThresholdCheck):
    """What turns queries and keys turns as fast as the configuration says: θ and its scaling."""

    name = "position_frequencies"
    title = "frequencies off the configuration"
    metric = "position_frequency_error_ratio"
    weighs = ("position_base", "position_base_found", "position_stretch_found")
    roles = ("positions",)
    limit = Limit(fail=0.01)
    exhibits = ("position_parts",)
    severity = "critical"
    meaning = "Positions turn with another θ, or another scaling, than the configuration states."
    impact = (
        "Every distance looks like another one. Nothing crashes; quality falls, the more the longer texts are, "
        "and the model that is saved is not the one that runs."
    )
    diagnosis = (
        "Compare rope_theta and the scaling in config.json with the model's origin, and the buffer inv_freq of "
        "the model (or its cos and sin) with them: was one changed after loading, or stored in the files by "
        "another version?"
    )
    mitigation = (
        "Restore the θ that the weights were trained with, in the configuration and in the buffers; make buffers "
        "anew of the configuration when a model is loaded. `embedwatch positions MODEL --deep` tells which θ "
        "suits the weights."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        stated, found = snapshot.number("position_base"), snapshot.number("position_base_found")
        stretch = snapshot.number("position_stretch_found")
        if stated and found and abs(found / stated - 1) > SAME:
            return f"Positions turn with θ = {found:,.0f}, where the configuration states {stated:,.0f}."
        if stretch and abs(stretch - 1) > SAME:
            return (
                f"Positions turn {stretch:.3g} times slower than the configuration says: a scaling was lost or added."
            )
        return f"A frequency is off by {measurement.number:.1%} from what the configuration gives."
