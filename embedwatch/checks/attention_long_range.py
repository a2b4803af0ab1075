"""Some head must look far in a long text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from embedwatch.core.check import LEAST_QUERIES, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class AttentionLongRange(ThresholdCheck):
    """In long texts, some head of the layer looks farther than a quarter of the text.

    Judged is the head that does most, in texts of 64 tokens or more; first and last token do not count, and queries
    from which a window hides all that is far are left out: a layer that has such a window is not asked. In three
    trained models the head that looks farthest gives 0.12 to 0.56 to what is far, in new ones 0.5.

    References: Vig & Belinkov 2019, "Analyzing the structure of attention in a Transformer language model"
    (arXiv 1906.04284): distance by layer.
    """

    name = "attention_long_range"
    title = "attention to what is far"
    metric = "attention_long_range_ratio"
    labels: ClassVar[Mapping[str, str]] = {"heads": "max"}
    roles = ("attention",)
    limit = Limit(warn=0.02, side="below")
    exhibits = ("attention_map",)
    meaning = "No head of this layer looks at what is far away in a long text."
    impact = "What stands at the other end of a text cannot be used in this layer; long texts are read in pieces."
    diagnosis = (
        "Compare with the layers around it, and with this one earlier: one local layer among others may be what was "
        "learned. Are all layers local, then look at the position bias, the base of rotary positions, the length of "
        "the texts in training, and a mask that is narrower than it should be."
    )
    mitigation = (
        "Train on longer texts, correct the base or the scale of rotary positions, lessen the slope of a distance "
        "bias, widen the mask."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether there was anything far to look at."""
        return super().applies(snapshot) and snapshot.number(self.metric, **self.labels) is not None

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which chance decides."""
        del snapshot
        return LEAST_QUERIES

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words."""
        del snapshot
        return f"The head that looks farthest gives {measurement.number:.2%} to what is far."
