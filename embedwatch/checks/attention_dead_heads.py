"""Heads must put something out."""

from __future__ import annotations

from embedwatch.core.check import LEAST_QUERIES, ThresholdCheck
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Limit


class AttentionDeadHeads(ThresholdCheck):
    """No head of a layer puts out next to nothing.

    A head counts as dead where its mean output norm is at most a thousandth of the median head's; in three trained
    models, and in new ones, the faintest head of a layer has 0.3 or more. It warns at the first, and fails at half of
    the layer.

    References: Michel et al. 2019, "Are sixteen heads really better than one?" (arXiv 1905.10650): many heads can be
    taken out on purpose; then this is no fault.
    """

    name = "attention_dead_heads"
    title = "heads that put nothing out"
    metric = "attention_dead_heads_ratio"
    roles = ("attention",)
    limit = Limit(warn=0.001, fail=0.5)
    exhibits = ("attention_outputs",)
    meaning = "Heads of this layer put out vectors next to zero."
    impact = "Their parameters do nothing; if heads die in training, the capacity that is left shrinks on."
    diagnosis = (
        "Were heads pruned on purpose? Then all is well. Otherwise look at the value weights of these heads: zero, "
        "decayed away, lost in a conversion, or cut off by a mask over heads?"
    )
    mitigation = (
        "Restore the value weights from the model's origin or from a checkpoint; in training lower their weight decay."
    )

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the outputs of heads are known."""
        return super().applies(snapshot) and snapshot.number(self.metric) is not None

    def minimum_rows(self, snapshot: Snapshot) -> int:
        """Return the number of rows below which chance decides."""
        del snapshot
        return LEAST_QUERIES

    def reason(self, snapshot: Snapshot, measurement: Measurement) -> str:
        """Return the share in words."""
        faintest = snapshot.number("attention_faintest_head_ratio")
        much = "" if faintest is None else f"; the faintest has {faintest:.2g} of the median head's norm"
        return f"{measurement.number:.0%} of the heads put out next to nothing{much}."
