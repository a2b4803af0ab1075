"""What the configuration claims, the tables of positions hold."""

from __future__ import annotations

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class PositionCache(ThresholdCheck):
    """Tables of positions, and kept cosines and sines, are as long as the configuration states."""

    name = "position_cache"
    title = "positions stated that no table holds"
    metric = "position_missing_rows"
    roles = ("positions",)
    limit = Limit(fail=1)
    meaning = "The cache or table of positions is shorter than the length that the configuration states."
    impact = (
        "The first text that is longer than the table fails, or gets positions of other places, far from where "
        "the model was saved."
    )
    diagnosis = (
        "Compare the rows of the table, or of cos and sin, with max_position_embeddings; see how the table was "
        "cut or converted."
    )
    mitigation = (
        "Restore the table from the model's origin, let the cache grow to the stated length, or state the true "
        "length in the configuration and in the tokenizer."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the model has what this is about."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return one sentence about this very value."""
        del snapshot
        return f"{measurement.number:,.0f} positions that the configuration states are in no table."
