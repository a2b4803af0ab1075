"""Slots: what waits for each Space, and its open window, bounded in bytes; what does not fit is refused at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import EmbedwatchError, UsageError
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.parcels import Parcel
from embedwatch.window import Window

__all__ = ["USUAL_ROLE", "Content", "Crowded", "Draining", "Entry", "Full", "Refused", "Slot", "Slots", "Unstorable"]

SOONEST, LATEST = 1.0, 60.0
"""Seconds after which a sender may try again, at the least and at the most."""
FIRST_PACE = 10e6
"""Bytes a second that are assumed before any was measured."""
USUAL_ROLE = "vectors"
"""Of a Space whose first sender does not say."""
WEIGHT = 0.1
"""Of the newest turn in the pace, which is an exponential mean."""
Content = VectorBatch | Window | Snapshot
"""What a parcel holds."""
Layout = frozenset[tuple[str, str]]
"""Names of the statistics of a window, each with its settings as text: windows of one layout can be merged."""


class _Later(EmbedwatchError, RuntimeError):
    """Not now: the same parcel can be sent again.

    Args:
        message: why.
        retry_after: seconds after which there may be room.
    """

    reason = "later"

    def __init__(self, message: str, *, retry_after: float = SOONEST) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Full(_Later):
    """The slot of the Space, or all of them together, hold as much as they may."""

    reason = "full"


class Crowded(Full):
    """The open windows of all Spaces would take more than they may."""

    reason = "windows"


class Draining(_Later):
    """Nothing is taken: the daemon is starting, or ends."""

    reason = "draining"


class Unstorable(Draining):
    """Nothing is taken: what is accepted has to be stored first, and the disk does not take it."""

    reason = "unstorable"


class Refused(UsageError):
    """The parcel does not fit, and will not fit later.

    Args:
        message: what it must be, what it is, and what to do.
        reason: a word for it, one of a few.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Entry:
    """An accepted parcel that is in no window yet.

    Args:
        number: in the store.
        size: of its bytes.
        parcel: what it says of itself; its payload is left out, for the store has it.
        content: what it holds.
        layout: of the states in it.
        more: measurements in it that no Statistic delivers.
    """

    number: int
    size: int
    parcel: Parcel
    content: Content
    layout: Layout | None = None
    more: tuple[Measurement, ...] = ()


@dataclass
class Slot:
    """What waits for one Space, in its order.

    Args:
        space: whose.
        role: what sort of place it is.
        heard: when something came last, by a clock that never jumps.
    """

    space: Space
    role: str
    heard: float
    size: int = 0
    """Bytes that wait or are about to."""
    dimension: int | None = None
    """D of the rows in its open window, and of those that wait."""
    layout: Layout | None = None
    """Of the states in its open window, and of those that wait."""
    window: int = 0
    """Bytes that its open window can come to take, with what waits."""
    busy: bool = False
    """Whether the evaluator knows that something waits."""
    coming: int = 0
    """Parcels that have room, and are being stored."""
    waiting: deque[Entry] = field(default_factory=deque)

    def check(self, parcel: Parcel, layout: Layout | None) -> None:
        """Refuse what cannot be one with what is there.

        Raises:
            Refused: for another role, dimension or set of statistics.
        """
        if parcel.role not in ("", self.role):
            raise Refused(
                f"`role` of {self.space} must be {self.role} as before, got {parcel.role}; name another place",
                reason="role",
            )
        if parcel.kind == "snapshot":
            return
        if None not in (self.dimension, parcel.dimension) and self.dimension != parcel.dimension:
            raise Refused(
                f"rows of {self.space} must have {self.dimension} dimensions like those of its open window, "
                f"got {parcel.dimension}; name another place, or wait for the next window",
                reason="dimension",
            )
        if None not in (self.layout, layout) and self.layout != layout:
            raise Refused(
                f"states of {self.space} must have the statistics and settings of its open window, got others; "
                "run one version and one configuration on all senders",
                reason="layout",
            )


class Slots:
    """All slots. Safe to use from several threads.

    Args:
        slot_bytes: the most bytes that wait for one Space.
        pending_bytes: the most that wait for all of them.
        max_spaces: the most Spaces.
        window_bytes: the most that open windows can come to take; `None` for any number.
        ticks: seconds by a clock that never jumps.

    Example:
        >>> slots = Slots(slot_bytes=100, pending_bytes=1000, max_spaces=3)
        >>> len(list(slots)), slots.size
        (0, 0)
    """

    def __init__(
        self,
        *,
        slot_bytes: int,
        pending_bytes: int,
        max_spaces: int,
        window_bytes: int | None = None,
        ticks: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._slot_bytes, self._pending_bytes, self._max_spaces = slot_bytes, pending_bytes, max_spaces
        self._window_bytes = window_bytes
        self._ticks = ticks
        self._slots: dict[Space, Slot] = {}
        self._lock = threading.RLock()
        self._pace = FIRST_PACE
        self.size = 0
        """Bytes that wait, of all slots."""
        self.windows = 0
        """Bytes that the open windows of all slots can come to take."""

    def __iter__(self) -> Iterator[Slot]:
        with self._lock:
            return iter(list(self._slots.values()))

    @property
    def parcels(self) -> int:
        """Parcels that wait."""
        return sum(len(slot.waiting) for slot in self)

    def reserve(self, parcel: Parcel, size: int, layout: Layout | None = None, *, window: int = 0) -> Slot:
        """Make room for a parcel; `put` or `release` has to follow.

        Args:
            parcel: what comes.
            size: its bytes.
            layout: of the states in it.
            window: bytes that a window can come to take that holds it.

        Raises:
            Full: if there is none now.
            Refused: if there never will be.
        """
        self._require_possible(size, window)
        with self._lock:
            slot = self._slots.get(parcel.space) or self._new(parcel.space, parcel.role or USUAL_ROLE)
            slot.check(parcel, layout)
            for held, most, name in (
                (slot.size, self._slot_bytes, f"of {slot.space}"),
                (self.size, self._pending_bytes, "of all Spaces"),
            ):
                if held + size > most:
                    raise Full(
                        f"the slot {name} must hold at most {most:,} bytes, it holds {held:,}; send it again later",
                        retry_after=min(max(held / self._pace, SOONEST), LATEST),
                    )
            self._require_window(slot, window)
            self._slots.setdefault(slot.space, slot)
            self._claim(slot, parcel, size, layout)
            self._open(slot, window)
            slot.coming += 1
        return slot

    def _require_possible(self, size: int, window: int) -> None:
        most = min(self._slot_bytes, self._pending_bytes)
        if size > most:
            raise Refused(
                f"a parcel must have at most {most:,} bytes, got {size:,}; send fewer rows at a time",
                reason="too_large",
            )
        if self._window_bytes is not None and window > self._window_bytes:
            raise Refused(
                f"a window must take at most {self._window_bytes:,} bytes, got a dimension that needs {window:,}; "
                "raise `storage.windows`",
                reason="too_large",
            )

    def _require_window(self, slot: Slot, window: int) -> None:
        """Refuse what would open a window, or make it larger, where all of them take what they may."""
        grown = self.windows + max(window - slot.window, 0)
        if self._window_bytes is not None and grown > max(self._window_bytes, self.windows):
            raise Crowded(
                f"open windows must take at most {self._window_bytes:,} bytes, got one more that needs {window:,}; "
                "send it again when others have closed, or raise `storage.windows`",
                retry_after=LATEST,
            )

    def _open(self, slot: Slot, window: int) -> None:
        """Count what the window of a slot can come to take."""
        self.windows += max(window - slot.window, 0)
        slot.window = max(slot.window, window)

    def _new(self, space: Space, role: str) -> Slot:
        if len(self._slots) >= self._max_spaces:
            raise Refused(
                f"there must be at most {self._max_spaces:,} Spaces, got one more; name fewer places and segments, "
                "or raise `max_spaces`",
                reason="too_many_spaces",
            )
        return Slot(space, role, self._ticks())

    def _claim(self, slot: Slot, parcel: Parcel, size: int, layout: Layout | None) -> None:
        slot.size += size
        self.size += size
        slot.heard = self._ticks()
        if parcel.kind != "snapshot":
            slot.dimension = parcel.dimension if slot.dimension is None else slot.dimension
            slot.layout = layout if slot.layout is None else slot.layout

    def release(self, slot: Slot, size: int) -> None:
        """Give back the room of a parcel that could not be stored, or was there already."""
        with self._lock:
            slot.coming -= 1
            slot.size -= size
            self.size -= size

    def put(self, slot: Slot, entry: Entry) -> bool:
        """Add a parcel that was stored; return whether the evaluator has to be told."""
        with self._lock:
            slot.coming -= 1
            slot.waiting.append(entry)
            idle, slot.busy = not slot.busy, True
        return idle

    def restore(self, space: Space, role: str, entries: list[Entry]) -> Slot:
        """Make the slot of a Space as it was before, without bounds: all of it was acknowledged."""
        with self._lock:
            slot = self._slots.setdefault(space, Slot(space, role, self._ticks()))
            for entry in entries:
                self._claim(slot, entry.parcel, entry.size, entry.layout)
                slot.waiting.append(entry)
            slot.busy = bool(slot.waiting)
        return slot

    def reopen(self, slot: Slot, *, dimension: int | None, layout: Layout | None, window: int) -> None:
        """Say that a slot has an open window from before, without bounds: all of it was acknowledged."""
        with self._lock:
            slot.dimension, slot.layout = dimension, layout
            self._open(slot, window)

    def take(self, slot: Slot, size: int, most: int | None = None) -> list[Entry]:
        """Take the oldest parcels of a slot, one at least, until they have so many bytes; they still count.

        Args:
            slot: whose.
            size: bytes.
            most: parcels, if not as many as there are.
        """
        with self._lock:
            found: list[Entry] = []
            taken = 0
            while slot.waiting and len(found) != most and (not found or taken + slot.waiting[0].size <= size):
                found.append(slot.waiting.popleft())
                taken += found[-1].size
        return found

    def done(self, slot: Slot, entries: list[Entry], seconds: float) -> None:
        """Forget parcels that are in the window now."""
        size = sum(entry.size for entry in entries)
        with self._lock:
            slot.size -= size
            self.size -= size
            if size and seconds > 0:
                self._pace += WEIGHT * (size / seconds - self._pace)

    def more(self, slot: Slot) -> bool:
        """Return whether more wait, which the evaluator has to be told again; else whoever comes next will tell it."""
        with self._lock:
            slot.busy = bool(slot.waiting)
            return slot.busy

    def role(self, space: Space) -> str:
        """Return the role of a Space, that of the first parcel; where none came or none was said, the usual one."""
        with self._lock:
            slot = self._slots.get(space)
            return USUAL_ROLE if slot is None else slot.role

    def closed(self, slot: Slot) -> None:
        """Say that the window of a Space is new: what waits alone decides what may come."""
        with self._lock:
            if not slot.waiting and not slot.coming:
                slot.dimension = slot.layout = None
                self.windows -= slot.window
                slot.window = 0

    def forget(self, age: float) -> list[Space]:
        """Drop the Spaces that were not heard of for so many seconds and hold nothing; return them."""
        now = self._ticks()
        with self._lock:
            gone = [space for space, slot in self._slots.items() if not slot.size and now - slot.heard > age]
            for space in gone:
                self.windows -= self._slots.pop(space).window
        return gone
