"""ModelCheck: one number that a diagnostic of a model found, judged where there is one."""

from __future__ import annotations

from embedwatch.core.check import RangeCheck, ThresholdCheck
from embedwatch.core.snapshot import Snapshot

__all__ = ["ModelCheck", "ModelRangeCheck"]


class ModelCheck(ThresholdCheck):
    """Judges one number that a diagnostic found. Models that have no such thing are not judged by it.

    A diagnostic says `None` where a model has not what it looks for: a model without positions lacks nothing.
    """

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the number is there."""
        return super().applies(snapshot) and snapshot.number(self.metric, **self.labels) is not None


class ModelRangeCheck(RangeCheck):
    """The same for a number that may be too large or too small."""

    def applies(self, snapshot: Snapshot) -> bool:
        """Return whether the number is there."""
        return super().applies(snapshot) and snapshot.number(self.metric, **self.labels) is not None
