"""Recorded: one Space as it was recorded, and how it is put together window by window."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from embedwatch.core.history import History
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import Verdict
from embedwatch.recording.traces import Moment, Spell, Trace

__all__ = ["CAPACITY", "MOST_SPELLS", "Recorded", "Tally"]

CAPACITY = 256
"""Snapshots kept of each Space: an even choice, finer than a line of a terminal can draw."""
MOST_SPELLS = 100
"""So many stretches of one verdict are kept of each check, the newest."""
GRAVE = ("warn", "fail")


@dataclass(frozen=True)
class Recorded:
    """One Space as it was recorded.

    Args:
        snapshot: the newest; numbers only.
        first: when the first window closed that is told of.
        windows: how many are told of.
        history: Snapshots of them, numbers only; an even choice where there are many.
        traces: key of a measurement to what it did in all of them.
        verdicts: the newest.
        spells: name of a check to the stretches in which it said the same, oldest first.
    """

    snapshot: Snapshot
    first: Moment
    windows: int
    history: History
    traces: Mapping[str, Trace]
    verdicts: tuple[Verdict, ...]
    spells: Mapping[str, tuple[Spell, ...]]

    @property
    def space(self) -> Space:
        """What was judged."""
        return self.snapshot.space

    @property
    def last(self) -> Moment:
        """When the newest window closed."""
        return Moment.of(self.snapshot)

    def now(self, check: str) -> Spell | None:
        """Return the stretch that a check is in; `None` where it did not judge the newest window."""
        spells = self.spells.get(check, ())
        return spells[-1] if spells and spells[-1].until == self.last else None

    def past(self, check: str) -> list[Spell]:
        """Return the stretches of `warn` and `fail` that are over, oldest first."""
        now = self.now(check)
        return [spell for spell in self.spells.get(check, ()) if spell.status in GRAVE and spell is not now]


class Tally:
    """Takes the windows of one Space in their order, and keeps what a Recorded tells.

    State: at most `CAPACITY` Snapshots, or the last ones that were asked for, and `MOST_SPELLS` Spells a check.

    Args:
        has_room: asked before a measurement or check that is new is kept.
        last: tell only of so many windows, the newest.
    """

    def __init__(self, has_room: Callable[[], bool], *, last: int | None = None) -> None:
        self._has_room, self._last = has_room, last
        self._history = History(capacity=last or CAPACITY, keep="newest" if last else "even")
        self._traces: dict[str, Trace] = {}
        self._spells: dict[str, deque[Spell]] = {}
        self._verdicts: tuple[Verdict, ...] = ()
        self._first: Moment | None = None
        self._windows = 0
        self.forgotten = 0
        """Spells that were dropped."""

    def judge(self, snapshot: Snapshot, verdicts: Sequence[Verdict]) -> None:
        """Take note of what the checks said about one window."""
        moment = Moment.of(snapshot)
        self._verdicts = tuple(verdicts)
        for verdict in verdicts:
            spells = self._spells.get(verdict.check)
            if spells is None:
                if not self._has_room():
                    continue
                spells = self._spells.setdefault(verdict.check, deque(maxlen=MOST_SPELLS))
            if spells and spells[-1].status == verdict.status:
                spells[-1].extend(verdict, moment)
            else:
                self.forgotten += len(spells) == MOST_SPELLS
                spells.append(Spell(verdict, moment, moment))

    def add(self, snapshot: Snapshot) -> None:
        """Take note of what was measured in one window."""
        kept = []
        for measurement in snapshot:
            trace = None if isinstance(measurement.value, Histogram) else self._trace(measurement)
            if trace is not None:
                value = measurement.number
                kept.append(Measurement(trace.metric, value, trace.labels))  # one declaration serves all windows
                if value is not None:
                    trace.add(value)
        self._history.append(replace(snapshot, measurements=tuple(kept)))
        self._first = self._first or Moment.of(snapshot)
        self._windows += 1

    def _trace(self, measurement: Measurement) -> Trace | None:
        trace = self._traces.get(measurement.key)
        if trace is None and self._has_room():
            trace = self._traces[measurement.key] = Trace(measurement.metric, measurement.labels)
        return trace

    def recorded(self) -> Recorded | None:
        """Return what is told of the Space; `None` where no window was taken."""
        snapshots = list(self._history)
        if not snapshots or self._first is None:
            return None
        first = Moment.of(snapshots[0]) if self._last else self._first
        return Recorded(
            snapshot=snapshots[-1],
            first=first,
            windows=len(snapshots) if self._last else self._windows,
            history=self._history,
            traces=_traces(snapshots) if self._last else self._traces,
            verdicts=self._verdicts,
            spells={
                check: tuple(spell for spell in spells if not spell.until.before(first))
                for check, spells in self._spells.items()
            },
        )


def _traces(snapshots: Sequence[Snapshot]) -> dict[str, Trace]:
    """Return the traces of these Snapshots alone."""
    traces: dict[str, Trace] = {}
    for snapshot in snapshots:
        for measurement in snapshot:
            trace = traces.setdefault(measurement.key, Trace(measurement.metric, measurement.labels))
            if measurement.number is not None:
                trace.add(measurement.number)
    return traces
