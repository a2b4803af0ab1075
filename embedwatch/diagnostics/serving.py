"""What the daemon takes, refuses and keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric

SPACES = Metric("spaces_watched", "Spaces that the daemon knows.", "spaces", digits=4)
ACCEPTED = Metric("parcels_accepted_total", "Parcels that were stored and acknowledged.", "parcels", "counter")
ROWS = Metric("rows_accepted_total", "Rows in the parcels that were acknowledged.", "rows", "counter")
REPEATED = Metric(
    "parcels_repeated_total", "Parcels that came again and changed nothing.", "parcels", "counter", headline=False
)
REFUSED = Metric(
    "parcels_refused_total", "Parcels that were not taken, by reason.", "parcels", "counter", "0", ("reason",)
)
WAITING = Metric("inbox_parcels", "Parcels that are in no window yet.", "parcels")
WAITING_BYTES = Metric("inbox_bytes", "Bytes of the parcels that are in no window yet.", "bytes", headline=False)
STATE = Metric("state_bytes", "Bytes of the state on the disk; 0 where none is kept.", "bytes", headline=False)
SAVED = Metric(
    "state_saved_timestamp_seconds", "When the state was saved last, in seconds since 1970.", "seconds", headline=False
)
UNRESTORED = Metric("state_unrestored", "Parts of the state that could not be read at the start.", "parts", healthy="0")


@dataclass(frozen=True)
class Served:
    """How serving goes.

    Args:
        spaces: number of Spaces that are known.
        accepted, rows, repeated: parcels and rows since the last time.
        refused: reason to the number of parcels since the last time.
        waiting, waiting_bytes: parcels in no window yet.
        state_bytes: size of the state on the disk.
        saved_at: when it was saved last, in seconds since the epoch; `None` for never.
        unrestored: parts of the state that could not be read at the start.
    """

    spaces: int = 0
    accepted: int = 0
    rows: int = 0
    repeated: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    waiting_bytes: int = 0
    state_bytes: int = 0
    saved_at: float | None = None
    unrestored: int = 0


class Serving(Diagnostic):
    """How much the daemon took and refused, what waits, and how its state stands."""

    name = "serving"
    title = "serving"
    examines = "serving"
    metrics = (SPACES, ACCEPTED, ROWS, REPEATED, REFUSED, WAITING, WAITING_BYTES, STATE, SAVED, UNRESTORED)

    def examine(self, subject: Any) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of a `Served`."""
        served: Served = subject
        return [
            SPACES.measure(served.spaces),
            ACCEPTED.measure(served.accepted),
            ROWS.measure(served.rows),
            REPEATED.measure(served.repeated),
            *(REFUSED.measure(count, reason=reason) for reason, count in served.refused.items()),
            WAITING.measure(served.waiting),
            WAITING_BYTES.measure(served.waiting_bytes),
            STATE.measure(served.state_bytes),
            SAVED.measure(served.saved_at),
            UNRESTORED.measure(served.unrestored),
        ], []

    @classmethod
    def examples(cls) -> Iterable[Served]:
        """Yield a daemon that has nothing yet, and one at work."""
        yield Served()
        yield Served(3, 10, 1_000, 1, {"full": 2}, 4, 4_000, 100_000, 1.7e9, 1)
