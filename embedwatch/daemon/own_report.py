"""The daemon's report on itself: a Snapshot like any other."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from threading import Lock
from typing import Any

from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.diagnostics.serving import Served, Serving
from embedwatch.diagnostics.watching import Watched, Watching

__all__ = ["SPACE", "Tally", "report"]

SPACE = Space("embedwatch", "daemon")
"""The Space of the daemon itself."""
REASONS = (
    "full", "windows", "draining", "unstorable", "role", "dimension", "layout", "space", "too_many_spaces", "too_large"
)  # fmt: skip
"""Why parcels are refused; `unreadable` where they are not what they claim to be."""
FAILURES = 100
"""The last refusals and failures that are kept."""
SHOWN = ("watch_seconds_total", "parts_off", "errors_total")
"""Of what a Monitor reports on itself, what holds for the daemon too."""


class Tally:
    """Counts what is accepted and refused, and keeps the last refusals. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter(dict.fromkeys((*REASONS, "unreadable"), 0))
        self._failures: deque[dict[str, Any]] = deque(maxlen=FAILURES)
        self._before: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def add(self, **counts: int) -> None:
        """Count what was `accepted`, `rows`, `repeated`."""
        with self._lock:
            self._counts.update(counts)

    def refuse(self, space: Space, reason: str, message: str, *, time: float) -> None:
        """Count a refusal, and keep it."""
        with self._lock:
            self._refused[reason] += 1
            self._failures.append({"time": time, "space": space.labels(), "reason": reason, "message": message})

    def keep(self, failure: Mapping[str, Any]) -> None:
        """Keep a failure that is no refusal of a parcel."""
        with self._lock:
            self._failures.append(dict(failure))

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The last refusals and failures, the newest first."""
        with self._lock:
            return list(reversed(self._failures))

    def totals(self) -> dict[str, Any]:
        """Return what was counted since the start."""
        with self._lock:
            counts = {name: self._counts[name] for name in ("accepted", "rows", "repeated")}
            return {**counts, "refused": dict(self._refused)}

    def news(self, **standing: Any) -> Served:
        """Return what was counted since the last time, beside how the rest of it stands."""
        with self._lock:
            counts, refused = self._counts - self._before[0], dict(self._refused)
            since = {reason: count - self._before[1][reason] for reason, count in refused.items()}
            self._before = self._counts.copy(), self._refused.copy()
        return Served(refused=since, **counts, **standing)


def report(
    served: Served, *, time: float, seconds: float, errors: Mapping[tuple[str, str], int], off: list[tuple[str, str]]
) -> Snapshot:
    """Return a Snapshot of how serving goes: parcels, state, processor time and exceptions since the last one."""
    watched = Watched(0, seconds=seconds, errors=errors, off=off)
    measurements = [each for each in Watching().examine(watched)[0] if each.name in SHOWN]
    measurements += Serving().examine(served)[0]
    return Snapshot(SPACE, tuple(measurements), Provenance(time, served.spaces, role="watching"))
