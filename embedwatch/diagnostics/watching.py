"""What a Monitor sees, misses and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric

EXPECTED = Metric("places_expected", "Places of the model that should be seen.", "places", digits=4)
SEEN = Metric("places_seen", "Places that were seen since watching began.", "places", "gauge", "all", digits=4)
OVERHEAD = Metric(
    "watch_overhead_ratio", "Our processor time over the rest of the model's time, lately.", healthy="< 0.01"
)
SECONDS = Metric("watch_seconds_total", "Processor time that watching took.", "seconds", "counter", headline=False)
INTERVAL = Metric("sampling_interval_steps", "One step in so many is looked at.", "steps")
DROPPED = Metric("rows_dropped_total", "Rows left out because the evaluator was behind.", "rows", "counter")
REATTACHED = Metric(
    "places_reattached_total", "Modules that were replaced, and are watched again.", "places", "counter", headline=False
)
OFF = Metric("parts_off", "Parts of embedwatch that failed so often that they are switched off.", "parts", healthy="0")
PAUSED = Metric(
    "watch_paused", "1 where looking paused in this window, to keep to the budget; 0 where not.", headline=False
)
WAITING = Metric(
    "places_waiting", "Places not looked at yet, since looking pauses to keep to the budget.", "places", headline=False
)
ERRORS = Metric("errors_total", "Exceptions of ours, by where they ended.", "errors", "counter", "0", ("stage", "name"))


@dataclass(frozen=True)
class Watched:
    """How watching goes.

    Args:
        expected: number of places that should be seen.
        blind: places that were not, each with the likely cause.
        overhead: our processor time over the rest; `None` where it is not known yet.
        seconds, dropped, reattached: since the last time, or since watching began in a total.
        every: one step in so many is looked at.
        errors: (stage, name) to the number of exceptions since the last time.
        off: (stage, name) of what is switched off.
        waiting: places that were not looked at yet, since looking pauses to keep to the budget; not among the expected.
        paused: whether looking paused at any time in this window.
    """

    expected: int
    blind: Mapping[str, str] = field(default_factory=dict)
    overhead: float | None = None
    seconds: float = 0.0
    every: int = 1
    dropped: int = 0
    reattached: int = 0
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    off: Sequence[tuple[str, str]] = ()
    waiting: Sequence[str] = ()
    paused: bool = False

    @property
    def seen(self) -> int:
        """Number of places that were seen of those that should be."""
        return self.expected - len(self.blind)


class Watching(Diagnostic):
    """How many places a Monitor sees of those it should, what it costs, and what went wrong with it."""

    name = "watching"
    title = "watching"
    examines = "watching"
    metrics = (EXPECTED, SEEN, OVERHEAD, SECONDS, INTERVAL, DROPPED, REATTACHED, PAUSED, WAITING, OFF, ERRORS)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of a `Watched`, and the blind places as a table."""
        watched: Watched = subject
        measurements = [
            EXPECTED.measure(watched.expected),
            SEEN.measure(watched.seen),
            OVERHEAD.measure(watched.overhead),
            SECONDS.measure(watched.seconds),
            INTERVAL.measure(watched.every),
            DROPPED.measure(watched.dropped),
            REATTACHED.measure(watched.reattached),
            PAUSED.measure(int(watched.paused)),
            WAITING.measure(len(watched.waiting)),
            OFF.measure(len(watched.off)),
            *(ERRORS.measure(count, stage=stage, name=name) for (stage, name), count in watched.errors.items()),
        ]
        table = Exhibit.build(
            "blind_places", "table", "Places that saw nothing.", ("place", "cause"), watched.blind.items()
        )
        off = Exhibit.build(
            "parts_off",
            "table",
            "Parts of embedwatch that are switched off.",
            ("part", "stage"),
            ((name, stage) for stage, name in watched.off),
        )
        return measurements, [table, off]

    @classmethod
    def examples(cls) -> Iterable[Watched]:
        """Yield a Monitor that sees nothing yet, and one at work."""
        yield Watched(0)
        yield Watched(2, waiting=("layers.1",), paused=True)
        yield Watched(3, {"layers.1": "never called"}, 0.004, 0.2, 4, 10, 1, {("statistic", "norms"): 2})
