"""What `embedwatch show` tells of a recording, for people and for machines alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from embedwatch.cli.sparkline import Point
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.core.verdict import STATUSES, Verdict
from embedwatch.recording import Moment, Recorded, Recording, Spell, Trace

__all__ = ["SHOW_SCHEMA", "Row", "choose_metrics", "choose_places", "rows_of", "steps_known", "to_json"]

SHOW_SCHEMA = 1
"""Version of the JSON that `embedwatch show --json` prints."""
SEVERAL = 8
"""So many names are listed where none of them was meant."""


@dataclass(frozen=True)
class Row:
    """One measurement over the run, and the verdict about it.

    Args:
        title: its name in words.
        trace: first, smallest, largest and last value.
        points: (step or time, value); even choice of the windows.
        verdict: the gravest of the newest verdicts that judge it.
        spell: how long that one has been said.
    """

    title: str
    trace: Trace
    points: tuple[Point, ...]
    verdict: Verdict | None = None
    spell: Spell | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            **self.trace.to_json(),
            "check": None if self.verdict is None else self.verdict.check,
            "status": None if self.verdict is None else self.verdict.status,
            "since": None if self.spell is None else self.spell.since.to_json(),
            "points": [list(point) for point in self.points],
        }


def choose_places(recording: Recording, glob: str) -> Recording:
    """Leave the Spaces whose place or whole name matches.

    Raises:
        UsageError: if none does.
    """
    chosen = [each for each in recording.spaces if _matches(glob, each.space.place, str(each.space))]
    if not chosen:
        places = list(dict.fromkeys(each.space.place for each in recording.spaces))
        raise UsageError(f"`--place` must match a place, got {glob!r}; {_instead(glob, places)}")
    return replace(recording, spaces=tuple(chosen))


def choose_metrics(recording: Recording, glob: str) -> Recording:
    """Leave the measurements that match, and the verdicts about them.

    Raises:
        UsageError: if none does.
    """
    spaces = [_choose_metrics(each, glob) for each in recording.spaces]
    if not any(each.traces for each in spaces):
        names = list(dict.fromkeys(trace.metric.name for each in recording.spaces for trace in each.traces.values()))
        raise UsageError(f"`--metric` must match a measurement, got {glob!r}; {_instead(glob, names)}")
    return replace(recording, spaces=tuple(spaces))


def _choose_metrics(recorded: Recorded, glob: str) -> Recorded:
    return replace(
        recorded,
        traces={key: trace for key, trace in recorded.traces.items() if _matches(glob, trace.metric.name, key)},
        verdicts=tuple(verdict for verdict in recorded.verdicts if _matches(glob, verdict.evidence.measurement)),
        spells={
            check: spells
            for check, spells in recorded.spells.items()
            if spells and _matches(glob, spells[-1].verdict.evidence.measurement)
        },
    )


def _matches(glob: str, *names: str) -> bool:
    return any(fnmatchcase(name, glob) for name in names)


def _instead(glob: str, names: Sequence[str]) -> str:
    return did_you_mean(glob, names) or f"there are {', '.join(names[:SEVERAL])}" + (
        ", …" if len(names) > SEVERAL else ""
    )


def rows_of(recorded: Recorded, *, every: bool = False) -> list[Row]:
    """Return the rows of a Space: what is for people or judged, or everything; the gravest on top."""
    judged = {verdict.evidence.measurement for verdict in recorded.verdicts}
    chosen = {
        key: trace
        for key, trace in recorded.traces.items()
        if every or (not trace.labels and (trace.metric.headline or trace.metric.name in judged))
    }
    points = _points(recorded, chosen)
    titles = Counter(name for name, _ in {(trace.metric.title, trace.metric.name) for trace in chosen.values()})
    rows = []
    for key, trace in chosen.items():
        verdict = _verdict(recorded, trace)
        title = trace.metric.title if titles[trace.metric.title] == 1 else trace.metric.name
        rows.append(
            Row(
                " ".join([title, *(f"{name}={value}" for name, value in trace.labels.items())]),
                trace,
                tuple(points[key]),
                verdict,
                None if verdict is None else recorded.now(verdict.check),
            )
        )
    return sorted(rows, key=_gravity)


def _gravity(row: Row) -> int:
    """What needs a look stands on top, the gravest first; everything else stays in its order."""
    return -STATUSES.index(row.verdict.status) if row.verdict and row.verdict.status in ("warn", "fail") else 0


def _points(recorded: Recorded, chosen: dict[str, Trace]) -> dict[str, list[Point]]:
    """Return the points of each measurement, one for every Snapshot of the history."""
    snapshots = list(recorded.history)
    moments = [Moment.of(snapshot) for snapshot in snapshots]
    stepped = steps_known(recorded)
    places = [float(moment.step if stepped and moment.step is not None else moment.time) for moment in moments]
    points: dict[str, list[Point]] = {key: [(place, None) for place in places] for key in chosen}
    for number, snapshot in enumerate(snapshots):
        for measurement in snapshot:
            if measurement.key in points:
                points[measurement.key][number] = (places[number], measurement.number)
    return points


def steps_known(recorded: Recorded) -> bool:
    """Whether the course of a Space goes by steps; by time where a window has none."""
    return all(snapshot.provenance.step is not None for snapshot in recorded.history)


def _verdict(recorded: Recorded, trace: Trace) -> Verdict | None:
    """Return the gravest verdict about a measurement; one with labels is known by its value."""
    about = [
        verdict
        for verdict in recorded.verdicts
        if verdict.evidence.measurement == trace.metric.name
        and (not trace.labels or verdict.evidence.value == trace.last is not None)
    ]
    return max(about, key=lambda verdict: STATUSES.index(verdict.status), default=None)


def to_json(recording: Recording, *, every: bool = False) -> dict[str, Any]:
    """Return what is shown as plain JSON types."""
    return {
        "schema": SHOW_SCHEMA,
        "path": str(recording.path),
        "status": recording.status,
        "counts": recording.counts(),
        "lines": recording.lines,
        "lost": recording.lost,
        "damaged": [damage.to_json() for damage in recording.damaged],
        "notes": list(recording.notes),
        "spaces": [_space(recorded, every=every) for recorded in recording.spaces],
    }


def _space(recorded: Recorded, *, every: bool) -> dict[str, Any]:
    provenance = recorded.snapshot.provenance
    return {
        "space": recorded.space.labels(),
        "role": provenance.role,
        "windows": recorded.windows,
        "first": recorded.first.to_json(),
        "last": recorded.last.to_json(),
        "rows": provenance.rows,
        "dimension": provenance.dimension,
        "coverage": dict(provenance.coverage),
        "axis": "step" if steps_known(recorded) else "time",
        "measurements": [row.to_json() for row in rows_of(recorded, every=every)],
        "verdicts": [
            {**verdict.to_json(), "since": None if spell is None else spell.since.to_json()}
            for verdict in recorded.verdicts
            for spell in [recorded.now(verdict.check)]
        ],
        "past": [spell.to_json() for check in recorded.spells for spell in recorded.past(check)],
    }
