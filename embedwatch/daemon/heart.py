"""Heart: takes parcels from many senders, makes one window of each Space, and judges it by the clock. No HTTP."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from embedwatch import __version__
from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, MergeError, UsageError
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Space
from embedwatch.daemon.accounts import Account, Opened, opened
from embedwatch.daemon.chronicle import course_json
from embedwatch.daemon.heart_settings import HeartSettings
from embedwatch.daemon.keeping import Keeping
from embedwatch.daemon.own_report import SPACE, Tally
from embedwatch.daemon.slots import LATEST, Draining, Entry, Full, Refused, Slots, Unstorable
from embedwatch.daemon.store import Delivery
from embedwatch.evaluator import Evaluator
from embedwatch.parcels import Parcel
from embedwatch.references.beside import ReferenceOf

__all__ = ["Draining", "Full", "Heart", "HeartSettings", "Refused", "Unstorable"]

TICK = 1.0
"""Seconds between two looks at the clock, at the most."""
STALLED = 60.0
"""Seconds without a beat after which the evaluator counts as stuck."""
CHANGES = 100
"""Turns of verdicts that are told, of all Spaces."""
WAIT = 600.0
"""Seconds to wait for what is put to the evaluator."""


class Heart:
    """Keeps one window of each Space, fed by all senders, and judges it every `interval` by a clock that never jumps.

    `accept` may be called from any thread; a second one of ours merges, measures, judges and delivers. What was
    accepted is in the store before `accept` returns, and leaves it with the window that it went into.

    Args:
        settings: limits and folder.
        sinks: where judged windows go, and whether each is closed at the end.
        clock: seconds since the epoch, for what people read.
        ticks: seconds of a clock that never jumps, for what has to be done.
        reference_of: what the rows of a Space are compared with; asked each time that a window is opened.

    Raises:
        UsageError: if the settings do not fit, or the storage is another daemon's.

    Example:
        >>> heart = Heart(HeartSettings())
        >>> heart.start()
        >>> heart.ready, heart.spaces()
        (True, [])
        >>> heart.close()
    """

    def __init__(
        self,
        settings: HeartSettings,
        *,
        sinks: Sequence[tuple[Sink, bool]] = (),
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        reference_of: ReferenceOf | None = None,
    ) -> None:
        self.reference_of = reference_of
        self.settings, self._sinks, self._clock, self._ticks = settings, list(sinks), clock, ticks
        self._slots = Slots(
            slot_bytes=settings.slot_bytes,
            pending_bytes=settings.pending_bytes,
            max_spaces=settings.max_spaces,
            window_bytes=settings.window_bytes,
            ticks=ticks,
        )
        self._tally = Tally()
        self._keeping = Keeping(
            settings,
            [sink for sink, _ in self._sinks],
            self._slots,
            self._tally,
            put=self._put,
            spent=lambda: 0.0 if self._evaluator is None else self._evaluator.seconds,
            clock=clock,
            reference_of=reference_of,
        )
        self._evaluator: Evaluator | None = None
        self._clockwork: threading.Thread | None = None
        self._stopped, self._ticking = threading.Event(), threading.Event()
        self._entrance = threading.Condition()
        self._inside = 0
        self._open = False
        self._due = 0.0

    # --- Beginning and end -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Restore what was kept, and begin to take parcels.

        Raises:
            UsageError: if it was started before.
        """
        if self._evaluator is not None:
            raise UsageError("`start` must be called once, got a second call; make another Heart")
        self._evaluator = Evaluator(self._keeping.boundary, period=TICK)
        self._evaluator.put(self._keeping.restore)
        self._evaluator.wait(WAIT)
        self._due = self._ticks() + self.settings.interval
        self._clockwork = threading.Thread(target=self._run_clock, name="embedwatch-clock", daemon=True)
        self._clockwork.start()
        self._open = True

    def drain(self, deadline: float) -> bool:
        """Take nothing more, and bring what was taken into windows, within so many seconds; return whether it is done.

        Open windows are saved, to go on after a restart; without a storage they are closed, judged and delivered.
        """
        end = time.monotonic() + deadline
        with self._entrance:
            self._open = False
            self._entrance.wait_for(lambda: not self._inside, deadline)
        evaluator = self._evaluator
        if evaluator is None:
            return True
        while self._slots.parcels and time.monotonic() < end:
            evaluator.wait(max(end - time.monotonic(), 0.0))
        done = not self._slots.parcels
        evaluator.put(self._keeping.close_windows if self.settings.storage is None else self._keeping.save_all)
        return evaluator.wait(max(end - time.monotonic(), 0.0)) and done

    def close(self) -> None:
        """Save what can be saved, end the threads, let storage and sinks go. Calling it again does nothing."""
        with self._entrance:
            self._open = False
        self._stopped.set()
        if self._clockwork is not None:
            self._clockwork.join()
        if self._evaluator is not None and self._evaluator.alive:
            self._evaluator.put(self._keeping.save_all)
            self._evaluator.close()
        self._keeping.store.close()
        for sink, ours in self._sinks:
            if ours:
                with self._keeping.boundary.guard("sink", sink.name):
                    sink.close()

    # --- Taking parcels, on threads of others ------------------------------------------------------------------------

    def accept(self, parcel: Parcel, *, data: bytes | None = None, batch: VectorBatch | None = None) -> None:
        """Take a parcel; it is stored when this returns. One that was taken before changes nothing.

        Args:
            parcel: what comes.
            data: it as bytes, where it was read of some; they are stored as they are.
            batch: the rows in it, where it was made of some; nobody else may hold them.

        Raises:
            Full: if too much waits already (429).
            Draining: if nothing is taken now, as at the end or while the disk is full (503).
            UsageError: if it does not fit the Space, or none more fits.
            InputError: if it is not what it claims to be.
        """
        try:
            with self._entered():
                self._accept(parcel, data or parcel.to_bytes(), batch)
        except (Full, Draining, Refused) as error:
            self._tally.refuse(parcel.space, error.reason, str(error), time=self._clock())
            raise
        except (InputError, MergeError) as error:
            self._tally.refuse(parcel.space, "unreadable", str(error), time=self._clock())
            raise InputError(str(error)) from error

    def confirm(self, spaces: Iterable[Space]) -> None:
        """Say that what was judged last of some Spaces holds now: the same content was found again."""
        for space in spaces:
            self._put(partial(self._keeping.confirm, space))

    def knows(self, sender: str, number: int) -> bool:
        """Return whether this delivery was accepted before."""
        return self._keeping.store.knows(sender, number)

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._entrance:
            if not self._open:
                raise Draining("nothing is taken while the daemon starts or ends; send it again later")
            self._inside += 1
        try:
            yield
        finally:
            with self._entrance:
                self._inside -= 1
                self._entrance.notify_all()

    def _accept(self, parcel: Parcel, data: bytes, batch: VectorBatch | None) -> None:
        if parcel.space == SPACE:
            raise Refused(f"`space` must not be {SPACE}, which is the daemon's own; name another", reason="space")
        found = opened(parcel, Boundary()) if batch is None else Opened(batch)
        role = parcel.role or self._slots.role(parcel.space)
        window = self._keeping.window_bytes(parcel.space, role, found.content)
        slot = self._slots.reserve(parcel, len(data), found.layout, window=window)
        try:
            number = self._keeping.store.add(Delivery(parcel.space, parcel.sender, parcel.number, data))
        except (sqlite3.Error, OSError) as error:
            self._slots.release(slot, len(data))
            raise Unstorable(
                f"the parcel cannot be stored ({error}); send it again later", retry_after=LATEST
            ) from error
        if number is None:
            self._slots.release(slot, len(data))
            self._tally.add(repeated=1)
            return
        self._tally.add(accepted=1, rows=parcel.rows)
        if self._slots.put(slot, Entry(number, len(data), replace(parcel, payload=b""), *found)):
            self._put(partial(self._keeping.turn, slot))

    def _put(self, job: Callable[[], None]) -> None:
        if self._evaluator is not None:
            self._evaluator.put(job)

    # --- The clock ---------------------------------------------------------------------------------------------------

    def close_windows(self) -> None:
        """Close, judge and deliver every open window now, with all that was accepted before."""
        self._put(self._keeping.close_windows)
        if self._evaluator is not None:
            self._evaluator.wait(WAIT)

    def _run_clock(self) -> None:
        while not self._stopped.wait(min(TICK, self.settings.interval)):
            if not self._ticking.is_set():  # else the evaluator is behind, and knows already
                self._ticking.set()
                self._put(self._tick)

    def _tick(self) -> None:
        self._ticking.clear()
        now = self._ticks()
        if now >= self._due:
            self._due = max(self._due + self.settings.interval, now)
            self._keeping.close_windows()
        else:
            self._keeping.publish()
        self._keeping.draw_wanted()

    # --- What others see ---------------------------------------------------------------------------------------------

    @property
    def beating(self) -> bool:
        """Whether the evaluator and its clock are alive and not stuck."""
        evaluator, clockwork = self._evaluator, self._clockwork
        alive = evaluator is not None and evaluator.alive and clockwork is not None and clockwork.is_alive()
        return alive and evaluator is not None and time.monotonic() - evaluator.beat < STALLED

    @property
    def ready(self) -> bool:
        """Whether the state is restored, and parcels are taken."""
        return self._open

    def status(self) -> dict[str, Any]:
        """Return how the daemon stands, in plain JSON types."""
        return {
            "version": __version__,
            "time": self._clock(),
            "ready": self.ready,
            "beating": self.beating,
            "interval_seconds": self.settings.interval,
            "spaces": len(self._keeping.accounts),
            "rounds": self._keeping.windows,
            "parcels": self._tally.totals(),
            "inbox": {"parcels": self._slots.parcels, "bytes": self._slots.size},
            "open_windows": {"most_bytes": self._slots.windows},
            "state": {
                "bytes": self._keeping.store.size,
                "saved_at": self._keeping.store.saved_at,
                "unrestored": self._keeping.unrestored,
                "damaged": self._keeping.store.damaged is not None,
            },
        }

    def spaces(self) -> list[dict[str, Any]]:
        """Return how each Space stands."""
        return [account.to_json() for _, account in self._sorted()]

    def space(self, space: Space) -> dict[str, Any] | None:
        """Return all that is known of a Space; `None` for one that is not known."""
        account = self._account(space)
        if account is None:
            return None
        return {**account.to_json(whole=True), "map": self._keeping.maps.about(space)}

    def _account(self, space: Space) -> Account | None:
        return self._keeping.own if space == SPACE else self._keeping.accounts.get(space)

    def course(self, space: Space) -> dict[str, Any] | None:
        """Return every number of a Space through the time that is remembered; `None` for one that is not known."""
        account = self._account(space)
        return None if account is None else course_json(account.course.history)

    def map(self, space: Space, *, gzip: bool, spread: bool = False) -> bytes | None:
        """Return the map of a Space as it was drawn last; `None` where none was. Nothing is computed now.

        Args:
            space: whose it is.
            gzip: whether as bytes through gzip.
            spread: whether t-SNE is wanted, which is then made on the evaluator's thread.
        """
        return self._keeping.maps.body(space, zipped=gzip, spread=spread)

    def changes(self) -> list[dict[str, Any]]:
        """Return how verdicts turned lately, also before a restart, the newest first."""
        accounts = [self._keeping.own, *(account for _, account in self._sorted())]
        turns = [turn for account in accounts for turn in list(account.chronicle.turns)]
        return sorted(turns, key=lambda turn: turn["time"], reverse=True)[:CHANGES]

    def verdicts(self, status: str | None = None) -> list[dict[str, Any]]:
        """Return the last verdicts of all Spaces, or those of one status, the gravest first."""
        own = self._keeping.own.verdicts()
        found = [verdict for _, account in self._sorted() for verdict in account.verdicts()] + own
        order = {"fail": 0, "warn": 1}
        chosen = [verdict for verdict in found if status in (None, verdict["status"])]
        return sorted(chosen, key=lambda verdict: order.get(verdict["status"], len(order)))

    @property
    def boundary(self) -> Boundary:
        """Where exceptions of ours end that belong to no Space; what ends there is reported and shown."""
        return self._keeping.boundary

    def tell(self, stage: str, name: str, message: str) -> None:
        """Keep, beside the refusals, why something failed that was not sent by anybody."""
        told = {"reason": "exception", "stage": stage, "name": name, "message": message}
        self._tally.keep({"time": self._clock(), "space": SPACE.labels(), **told})

    def failures(self) -> list[dict[str, Any]]:
        """Return the last refusals and failures, then the exceptions of ours by Space, stage and name."""
        boundaries = [
            (SPACE, self._keeping.boundary),
            *((space, account.boundary) for space, account in self._sorted()),
        ]
        counted = [
            {"space": space.labels(), "reason": "exception", "stage": stage, "name": name, "count": count}
            for space, boundary in boundaries
            for (stage, name), count in boundary.errors.items()
        ]
        return [*self._tally.failures, *counted]

    def _sorted(self) -> list[tuple[Space, Account]]:
        return sorted(self._keeping.accounts.items(), key=lambda pair: str(pair[0]))

    def exposition(self, accept: str, *, gzip: bool) -> tuple[bytes, dict[str, str]]:
        """Return the metrics as they were written last, with the headers that go with them; nothing is computed."""
        return self._keeping.pages.page(accept, zipped=gzip)
