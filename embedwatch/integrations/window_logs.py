"""What callbacks of trainers add to the logs of theirs: the headlines of each window, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from embedwatch.core.snapshot import Provenance, Snapshot
from embedwatch.integrations.training_watch import TrainingWatch

__all__ = ["WindowLogs"]

HEADLINES = ("norm_mean", "effective_rank_ratio", "watch_overhead_ratio")
"""What is logged of each place that has it."""
OF_TABLES = ("table", "tokens")
"""Roles of places of which every headline is logged."""


class WindowLogs:
    """Numbers for the logs of a trainer: `embedwatch/PLACE/METRIC`, `embedwatch/warn` and `fail`, and what was scaled.

    Args:
        watch: of the training.
    """

    def __init__(self, watch: TrainingWatch) -> None:
        self._watch = watch
        self.restart()

    def restart(self) -> None:
        """Forget what was logged before: a training begins."""
        self._logged: dict[str, Provenance] = {}

    def fresh(self) -> dict[str, float]:
        """Return what is new since the last time."""
        monitor = self._watch.monitor
        snapshots = {} if monitor is None else monitor.snapshots
        fresh = {
            place: snapshot for place, snapshot in snapshots.items() if snapshot.provenance != self._logged.get(place)
        }
        self._logged |= {place: snapshot.provenance for place, snapshot in fresh.items()}
        found: dict[str, float] = {}
        if monitor is not None and fresh:
            found.update(pair for place, snapshot in fresh.items() for pair in _headlines(place, snapshot))
            statuses = Counter(verdict.status for verdict in monitor.findings)
            found |= {f"embedwatch/{status}": statuses[status] for status in ("warn", "fail")}
        renormalized = self._watch.renormalized
        if renormalized is not None:
            found["embedwatch/renormalized"] = renormalized
        return found


def _headlines(place: str, snapshot: Snapshot) -> Iterator[tuple[str, float]]:
    """Yield what is logged of a place: numbers without labels that are there."""
    every = snapshot.provenance.role in OF_TABLES
    for measurement in snapshot:
        chosen = measurement.name in HEADLINES or (every and measurement.metric.headline)
        if chosen and measurement.number is not None and not measurement.labels:
            yield f"embedwatch/{place}/{measurement.name}", measurement.number
