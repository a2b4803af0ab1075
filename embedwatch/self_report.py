"""The self-report: how watching goes, from running totals, as a Snapshot like any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.snapshot import Provenance, Snapshot
from embedwatch.course import Course, Judgement
from embedwatch.diagnostics.watching import Watched, Watching

__all__ = ["SelfReport"]

NAMED = 3
"""So many places that saw nothing for the same cause are named in one sentence."""


class SelfReport:
    """Turns totals into what a window added, and judges it.

    Args:
        course: the Space of the Monitor itself.
        boundary: whose exceptions are counted.
    """

    def __init__(self, course: Course, boundary: Boundary) -> None:
        self._course, self._boundary = course, boundary
        self._parts: dict[tuple[str, str], int] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._before = Watched(0)

    def parts(self, parts: Iterable[tuple[str, str]]) -> None:
        """Say what may fail, by (stage, name): their counters are born at zero."""
        self._parts = dict.fromkeys(parts, 0)

    def expected(self, places: int) -> Snapshot:
        """Return a Snapshot of nothing yet, counters at zero."""
        return self._snapshot(Watched(places, errors=self._parts), time=0.0, rows=0)[0]

    def judge(self, totals: Watched, provenance: Mapping[str, Any]) -> Judgement:
        """Judge what has happened since the last time, from totals since watching began."""
        errors, before = self._boundary.errors, self._before
        since = {key: count - self._errors.get(key, 0) for key, count in errors.items()}
        self._errors, self._before = errors, totals
        watched = replace(
            totals,
            seconds=totals.seconds - before.seconds,
            dropped=totals.dropped - before.dropped,
            reattached=totals.reattached - before.reattached,
            errors={**self._parts, **since},
            off=self._boundary.off,
        )
        more = {name: value for name, value in provenance.items() if name != "ended"}
        notes = (*_sentences(totals.blind), *_pause(totals))
        snapshot, exhibits = self._snapshot(
            watched, time=provenance["ended"], rows=totals.expected, notes=notes, **more
        )
        return self._course.publish(snapshot, lambda names: [made for made in exhibits if made.name in names])

    def _snapshot(self, watched: Watched, **provenance: Any) -> tuple[Snapshot, Sequence[Any]]:
        measurements, exhibits = Watching().examine(watched)
        return Snapshot(self._course.space, tuple(measurements), Provenance(role="watching", **provenance)), exhibits


def _pause(totals: Watched) -> Iterable[str]:
    """Yield a sentence where looking pauses, and one about the places that wait for its end."""
    if totals.paused:
        yield "Looking is paused at times, since watching has taken its share of the time; it goes on by itself."
    if totals.waiting:
        more = f" and {len(totals.waiting) - NAMED} more" if len(totals.waiting) > NAMED else ""
        yield f"{', '.join(totals.waiting[:NAMED])}{more}: not looked at yet."


def _sentences(blind: Mapping[str, str]) -> Iterable[str]:
    """Yield a sentence for each cause, with the places it explains."""
    causes: dict[str, list[str]] = {}
    for place, cause in blind.items():
        causes.setdefault(cause, []).append(place)
    for cause, places in causes.items():
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        yield f"{', '.join(places[:NAMED])}{more}: {cause}."
