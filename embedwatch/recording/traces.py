"""What many windows say together: Moment, Trace of a measurement, Spell of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Status, Verdict

__all__ = ["Moment", "Spell", "Trace"]


@dataclass(frozen=True, slots=True)
class Moment:
    """When a window closed.

    Args:
        step: training step, where there is one.
        time: seconds since the epoch.

    Example:
        >>> str(Moment(1200, 0.0)), str(Moment(None, 0.0))
        ('step 1,200', '1970-01-01 00:00')
    """

    step: int | None
    time: float

    @classmethod
    def of(cls, snapshot: Snapshot) -> Moment:
        """Return when the window of a Snapshot closed."""
        return cls(snapshot.provenance.step, snapshot.provenance.time)

    def before(self, other: Moment) -> bool:
        """Whether this was earlier: by step where both have one, by time elsewhere."""
        if self.step is None or other.step is None:
            return self.time < other.time
        return self.step < other.step

    def __str__(self) -> str:
        return self.clock() if self.step is None else f"step {self.step:,}"

    def clock(self) -> str:
        """Return date and time in UTC."""
        return f"{datetime.fromtimestamp(self.time, timezone.utc):%Y-%m-%d %H:%M}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"step": self.step, "time": self.time}


@dataclass(slots=True)
class Trace:
    """What one measurement did over many windows: first, smallest, largest and last value.

    Windows in which it had no number do not count.

    Example:
        >>> trace = Trace(Metric("loss", "Loss."), {})
        >>> for value in (3.0, 5.0, 4.0):
        ...     trace.add(value)
        >>> trace.first, trace.min, trace.max, trace.last, trace.windows
        (3.0, 3.0, 5.0, 4.0, 3)
    """

    metric: Metric
    labels: Mapping[str, str]
    first: float | None = None
    min: float | None = None
    max: float | None = None
    last: float | None = None
    windows: int = 0

    @property
    def key(self) -> str:
        """Name and labels in one text, like that of a Measurement."""
        return Measurement(self.metric, None, self.labels).key

    def add(self, value: float) -> None:
        """Take note of the value in the next window."""
        self.first = value if self.first is None else self.first
        self.min = value if self.min is None or value < self.min else self.min
        self.max = value if self.max is None or value > self.max else self.max
        self.last = value
        self.windows += 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "name": self.metric.name,
            "labels": dict(self.labels),
            "unit": self.metric.unit,
            "first": self.first,
            "min": self.min,
            "max": self.max,
            "last": self.last,
            "windows": self.windows,
        }


@dataclass(slots=True)
class Spell:
    """A stretch of windows in which one check said the same.

    Args:
        verdict: the newest of the stretch.
        since: the first window of the stretch.
        until: the last window of the stretch.
        windows: how many there are.
    """

    verdict: Verdict
    since: Moment
    until: Moment
    windows: int = 1

    @property
    def status(self) -> Status:
        """What the check said."""
        return self.verdict.status

    def extend(self, verdict: Verdict, until: Moment) -> None:
        """Add a window in which the check said the same again."""
        self.verdict, self.until = verdict, until
        self.windows += 1

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; the verdict is the newest of the stretch."""
        return {
            "since": self.since.to_json(),
            "until": self.until.to_json(),
            "windows": self.windows,
            "verdict": self.verdict.to_json(),
        }
