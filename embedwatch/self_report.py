"""The self-report: how watching goes, from running totals, as a Snapshot like any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.snapshot import Provenance, Snapshot
from embedwatch.course import Course, Judgement
from embedwatch.diagnostics.watching import Watched, Watching

__all__ = ["SelfReport", "Totals"]

NAMED = 3
"""So many places that saw nothing for the same cause are named in one sentence."""


@dataclass(frozen=True)
class Totals:
    """Where watching stands.

    Args:
        expected: number of places that should be seen.
        blind: places that were not, each with the likely cause.
        overhead: our processor time over the rest, lately; `None` where it is not known yet.
        every: one step in so many is looked at.
        seconds, dropped, reattached: since watching began.
    """

    expected: int
    blind: Mapping[str, str] = field(default_factory=dict)
    overhead: float | None = None
    every: int = 1
    seconds: float = 0.0
    dropped: int = 0
    reattached: int = 0


class SelfReport:
    """Turns totals into what a window added, and judges it.

    Args:
        course: the Space of the Monitor itself.
        boundary: whose exceptions are counted.
        parts: (stage, name) of what may fail: their counters are born at zero.
    """

    def __init__(self, course: Course, boundary: Boundary, parts: Iterable[tuple[str, str]]) -> None:
        self._course, self._boundary = course, boundary
        self._parts = dict.fromkeys(parts, 0)
        self._errors: dict[tuple[str, str], int] = {}
        self._before = Totals(0)

    def parts(self, parts: Iterable[tuple[str, str]]) -> None:
        """Say what may fail."""
        self._parts = dict.fromkeys(parts, 0)

    def expected(self, places: int) -> Snapshot:
        """Return a Snapshot of nothing yet, counters at zero."""
        return self._snapshot(Watched(places, errors=self._parts), time=0.0, rows=0)[0]

    def judge(self, totals: Totals, provenance: Mapping[str, Any]) -> Judgement:
        """Judge what has happened since the last time."""
        errors, before = self._boundary.errors, self._before
        since = {key: count - self._errors.get(key, 0) for key, count in errors.items()}
        self._errors, self._before = errors, totals
        watched = Watched(
            totals.expected,
            totals.blind,
            totals.overhead,
            seconds=totals.seconds - before.seconds,
            every=totals.every,
            dropped=totals.dropped - before.dropped,
            reattached=totals.reattached - before.reattached,
            errors={**self._parts, **since},
            off=self._boundary.off,
        )
        more = {name: value for name, value in provenance.items() if name != "ended"}
        notes = tuple(_sentences(totals.blind))
        snapshot, exhibits = self._snapshot(
            watched, time=provenance["ended"], rows=totals.expected, notes=notes, **more
        )
        return self._course.publish(snapshot, lambda names: [made for made in exhibits if made.name in names])

    def _snapshot(self, watched: Watched, **provenance: Any) -> tuple[Snapshot, Sequence[Any]]:
        measurements, exhibits = Watching().examine(watched)
        return Snapshot(self._course.space, tuple(measurements), Provenance(role="watching", **provenance)), exhibits


def _sentences(blind: Mapping[str, str]) -> Iterable[str]:
    """Yield a sentence for each cause, with the places it explains."""
    causes: dict[str, list[str]] = {}
    for place, cause in blind.items():
        causes.setdefault(cause, []).append(place)
    for cause, places in causes.items():
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        yield f"{', '.join(places[:NAMED])}{more}: {cause}."
