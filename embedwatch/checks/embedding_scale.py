"""What enters the first layer must be of a usual size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from embedwatch.core.check import RangeCheck
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit


class EmbeddingScale(RangeCheck):
    """Entries of what enters the first layer are neither tiny nor huge: their root mean square is `mean norm / √D`.

    Models that work begin between 0.02 (GPT-2, Llama) and 1.4 (scaled tokens with positions), and T5 reaches 12. So
    this finds mistakes of orders of magnitude; `position_balance` finds a factor √D that is missing or applied twice.
    """

    name = "embedding_scale"
    title = "size of what enters the first layer"
    metric = "norm_mean"
    roles = ("embedding",)
    limit = Limit(warn=30, fail=300)
    floor = Limit(warn=0.005, fail=0.0005, side="below")
    meaning = "The sum of tokens and positions is far larger or smaller than in models that work."
    impact = (
        "Too large, it drowns what the first layers add, and half precision loses their digits; too small, the first "
        "layers drown the tokens, and the epsilon of a normalisation shows."
    )
    diagnosis = (
        "Follow the scale: standard deviation of the table at its start, factor √D (once?), positions, normalisation."
    )
    mitigation = (
        "Draw a table that is scaled by √D from N(0, 1/D), another from N(0, 0.02²), or normalise the sum; for a "
        "trained model look for a conversion that lost a factor."
    )

    def value(self, snapshot: Snapshot, number: float) -> float | None:
        """Return the root mean square entry."""
        dimension = snapshot.provenance.dimension
        return number / math.sqrt(dimension) if dimension else None

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return entry and norm."""
        entry = self.value(snapshot, measurement.number or 0.0)
        size = "" if entry is None else f" entries of size {entry:.3g},"
        return f"What enters the first layer has{size} vectors of norm {measurement.number:.4g}."

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the root mean square entry, which is a measurement of its own kind."""
        return replace(super().evaluate(snapshot, reference, history), measurement="")
