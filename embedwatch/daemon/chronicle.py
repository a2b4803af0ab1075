"""Chronicle: how one Space has fared: statuses of its windows, verdicts that turned, a course.

The page at `/` shows it; nothing is judged by it. The store keeps it, so that it goes on after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from embedwatch.core.errors import InputError
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst

__all__ = ["TURNS", "WINDOWS", "Chapter", "Chronicle", "course_json"]

WINDOWS = 60
"""Windows whose status is kept."""
TURNS = 50
"""Turns of verdicts that are kept, of one Space."""
POINTS = 60
"""Newest points of the one course that stands beside a Space in a list."""
TOLD = ("time", "space", "check", "title", "before", "status", "reason")
"""What is known of a turn."""
GRAVE: tuple[Status, ...] = ("warn", "fail")
USUAL = ("effective_rank_ratio", "norm_mean", "mean_cosine")
"""Whose course is shown where no verdict names a measurement."""


class Chapter(NamedTuple):
    """A stretch of a Chronicle in plain JSON types, the oldest first."""

    statuses: Sequence[Sequence[Any]] = ()
    """When windows closed, and the gravest status of each."""
    turns: Sequence[dict[str, Any]] = ()
    """Verdicts that became grave, or ceased to be."""


class Chronicle:
    """Statuses of windows, turns of verdicts, and the course of the measurement that matters most now.

    Example:
        >>> Chronicle().to_json()
        {'statuses': [], 'course': None}
    """

    def __init__(self) -> None:
        self.statuses: deque[tuple[float, Status]] = deque(maxlen=WINDOWS)
        """When windows closed, and the gravest status of each."""
        self.turns: deque[dict[str, Any]] = deque(maxlen=TURNS)
        """Verdicts that became grave, or ceased to be, the newest last."""
        self._course: dict[str, Any] | None = None
        self._windows, self._turned = 0, 0

    def news(self) -> Chapter:
        """Return what the store lacks: as much of it as is kept."""
        statuses, turns = list(self.statuses), list(self.turns)
        return Chapter(statuses[max(len(statuses) - self._windows, 0) :], turns[max(len(turns) - self._turned, 0) :])

    def settle(self) -> None:
        """Say that the store has all of it."""
        self._windows, self._turned = 0, 0

    def restore(self, chapter: Chapter) -> None:
        """Go on where the store says that it was.

        Raises:
            InputError: if it is not what it claims to be; then nothing has changed.
        """
        known = {status: status for status in STATUSES}
        try:
            statuses = [(float(time), known[status]) for time, status in chapter.statuses]
            turns = [{name: turn[name] for name in TOLD} | {"time": float(turn["time"])} for turn in chapter.turns]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"`chapter` must hold statuses with their time and whole turns, got {error!r}") from error
        self.statuses.extend(statuses)
        self.turns.extend(turns)

    def add(self, snapshot: Snapshot, verdicts: Sequence[Verdict], before: Mapping[str, Status]) -> None:
        """Add a judgement, with the statuses that checks had before."""
        time = snapshot.provenance.time
        self.statuses.append((time, worst([verdict.status for verdict in verdicts])))
        self._windows += 1
        for verdict in verdicts:
            was = before.get(verdict.check)
            if verdict.status != was and (verdict.status in GRAVE or was in GRAVE):
                self._turned += 1
                self.turns.append(
                    {
                        "time": time,
                        "space": snapshot.space.labels(),
                        "check": verdict.check,
                        "title": verdict.title,
                        "before": was,
                        "status": verdict.status,
                        "reason": verdict.reason,
                    }
                )

    def follow(self, history: Iterable[Snapshot], verdicts: Sequence[Verdict]) -> None:
        """Keep the newest points of the measurement that the gravest verdict rests on."""
        snapshots = list(history)[-POINTS:]
        graver = sorted(verdicts, key=lambda verdict: STATUSES.index(verdict.status), reverse=True)
        named = [verdict.evidence.measurement for verdict in graver if verdict.status in GRAVE]
        wanted = [*named, *USUAL, *(verdict.evidence.measurement for verdict in graver)]
        newest = snapshots[-1] if snapshots else None
        chosen = next((each for name in wanted if name and newest and (each := newest.get(name)) and _told(each)), None)
        if chosen is None:
            self._course = None
            return
        values = [snapshot.number(chosen.name, **dict(chosen.labels)) for snapshot in snapshots]
        self._course = {"name": chosen.key, "title": chosen.metric.title, "unit": chosen.metric.unit, "values": values}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, but for the turns."""
        return {"statuses": [list(each) for each in list(self.statuses)], "course": self._course}


def course_json(history: Iterable[Snapshot]) -> dict[str, Any]:
    """Return every number of a Space through time, in plain JSON types: `None` where a Snapshot has none.

    Example:
        >>> course_json([])
        {'times': [], 'steps': [], 'rows': [], 'series': []}
    """
    snapshots = list(history)
    series: dict[str, dict[str, Any]] = {}
    for place, snapshot in enumerate(snapshots):
        for measurement in snapshot:
            if _told(measurement):
                if measurement.key not in series:
                    series[measurement.key] = _empty(measurement, len(snapshots))
                series[measurement.key]["values"][place] = measurement.number
    return {
        "times": [snapshot.provenance.time for snapshot in snapshots],
        "steps": [snapshot.provenance.step for snapshot in snapshots],
        "rows": [snapshot.provenance.rows for snapshot in snapshots],
        "series": list(series.values()),
    }


def _told(measurement: Measurement) -> bool:
    """Return whether it is a number that a line can show."""
    return measurement.number is not None


def _empty(measurement: Measurement, count: int) -> dict[str, Any]:
    metric = measurement.metric
    return {
        "name": measurement.name,
        "key": measurement.key,
        "title": metric.title,
        "unit": metric.unit,
        "help": metric.help,
        "healthy": metric.healthy,
        "values": [None] * count,
    }
