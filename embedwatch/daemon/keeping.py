"""Keeping: what the evaluator of the daemon does with what was accepted, on its one thread."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.course import Judgement
from embedwatch.course_maker import CourseMaker
from embedwatch.daemon.accounts import Account, Accounts, layout_of, opened
from embedwatch.daemon.heart_settings import HeartSettings
from embedwatch.daemon.maps import Maps
from embedwatch.daemon.own_report import SPACE, Tally, report
from embedwatch.daemon.pages import Pages
from embedwatch.daemon.slots import Content, Entry, Slot, Slots
from embedwatch.daemon.store import Kept, Saved, Store
from embedwatch.parcels import Parcel
from embedwatch.references.beside import ReferenceOf

__all__ = ["Keeping"]

log = logging.getLogger(__name__)

TURN_BYTES = 1 << 20
"""So much of one slot is taken at a time; then it is the turn of the others."""

SAVED_BYTES = 32 << 20
"""Packed windows that are saved at a time, at the least."""


class Keeping:
    """Brings parcels from slots into windows, closes, judges, saves and delivers these. Of one thread.

    Args:
        settings: limits and folder.
        sinks: where judged windows go.
        slots: what waits.
        tally: what was accepted and refused.
        put: adds a job for the same thread.
        spent: processor seconds of that thread so far.
        clock: seconds since the epoch.
        reference_of: what the rows of a Space are compared with.
    """

    def __init__(
        self,
        settings: HeartSettings,
        sinks: Sequence[Sink],
        slots: Slots,
        tally: Tally,
        *,
        put: Callable[[Callable[[], None]], None],
        spent: Callable[[], float],
        clock: Callable[[], float],
        reference_of: ReferenceOf | None = None,
    ) -> None:
        self._settings, self._sinks, self.slots, self.tally = settings, sinks, slots, tally
        self._put, self._spent, self._clock = put, spent, clock
        self.boundary = Boundary()
        self.compared = 1
        """Spaces that are compared with a reference, and share what alarms are accepted; counted in each round."""
        self._factory = Accounts(
            CourseMaker(
                only=settings.only,
                skip=settings.skip,
                reference_of=reference_of,
                alarms=settings.alarms,
                compared=lambda: self.compared,
            )
        )
        self.accounts: dict[Space, Account] = {}
        self.own = self._factory.make(SPACE, "watching")
        self.pages = Pages(settings.max_spaces, clock)
        self.maps = Maps()
        self.store = Store(settings.storage)
        self.unrestored = 0
        """Parts of the state that could not be read at the start."""
        self.windows = 0
        """Rounds in which windows were closed."""
        self._news: list[Judgement] = []
        self._seconds = 0.0
        self._errors: Counter[tuple[str, str]] = Counter()

    def restore(self) -> None:
        """Take over what the store has; what is damaged is a finding."""
        kept = self.store.restore()
        self.unrestored = int(self.store.damaged is not None)
        if self.store.damaged is not None:
            with self.boundary.guard("restore", "state"):
                raise InputError(f"the state was damaged; what could not be read of it is in {self.store.damaged.name}")
        closed = {}
        for space, each in kept.items():
            account = self.own if space == SPACE else self._account(space, _role(each))
            self.unrestored += account.restore(each)
            if account.course.last is not None and space != SPACE:
                closed[space] = account.course.last.snapshot.provenance.time
            if space != SPACE:
                self._requeue(account, each)
        self.pages.remember(closed)

    def _requeue(self, account: Account, kept: Kept) -> None:
        """Put what is in the inbox where it was; what cannot be read is counted, and leaves it."""
        entries = []
        for number, data in kept.entries:
            with account.boundary.guard("restore", "parcel"):
                parcel = Parcel.from_bytes(data)
                found = opened(parcel, account.boundary)
                entries.append(Entry(number, len(data), replace(parcel, payload=b""), *found))
            if not entries or entries[-1].number != number:
                self.unrestored += 1
                account.drop(number)
        slot = self.slots.restore(account.course.space, account.course.role, entries)
        window = account.course.window
        contents = [entry.content for entry in entries] + ([window] if window.rows else [])
        taken = max((self.window_bytes(slot.space, slot.role, content) for content in contents), default=0)
        if window.rows:
            self.slots.reopen(slot, dimension=window.dimension, layout=layout_of(window), window=taken)
        elif taken:
            self.slots.reopen(slot, dimension=slot.dimension, layout=slot.layout, window=taken)
        if slot.busy:
            self._put(partial(self.turn, slot))

    def window_bytes(self, space: Space, role: str, content: Content) -> int:
        """Return the bytes that a window of this Space can come to take that holds this."""
        return self._factory.window_bytes(space, role, content)

    def _account(self, space: Space, role: str) -> Account:
        if space not in self.accounts:
            self.accounts[space] = self._factory.make(space, role)
        return self.accounts[space]

    def turn(self, slot: Slot) -> None:
        """Bring the oldest parcels of a slot into its window, and come back to it where more wait."""
        try:
            self._bring(slot)
        finally:
            if self.slots.more(slot):
                self._put(partial(self.turn, slot))

    def _bring(self, slot: Slot, most: int | None = None) -> int:
        """Bring the oldest parcels of a slot, so many at most, into its window; return how many there were."""
        account = self._account(slot.space, slot.role)
        began = time.perf_counter()
        entries = self.slots.take(slot, TURN_BYTES, most)
        try:
            self._news += account.apply_all(entries)
        finally:
            self.slots.done(slot, entries, time.perf_counter() - began)
        if account.owed >= self._settings.slot_bytes // 2:
            self._save([account])
        elif sum(each.owed for each in self.accounts.values()) >= self._settings.pending_bytes:
            self.save_all()
        return len(entries)

    def close_windows(self) -> None:
        """Close, judge, save and deliver every open window, and report on the daemon itself.

        What waits when this begins goes into the windows; what comes meanwhile, into the next ones: senders that are
        as fast as this thread would keep windows open for ever.
        """
        for slot, waiting in [(slot, len(slot.waiting)) for slot in self.slots]:
            while waiting > 0:
                waiting -= self._bring(slot, waiting) or waiting
        ended = self._clock()
        self.windows += 1
        self.compared = sum(account.compared for account in self.accounts.values())
        for account in list(self.accounts.values()):
            judgement = account.close(ended)
            if judgement is not None:
                self._news.append(judgement)
                self._draw(account, judgement.snapshot)
        for slot in self.slots:
            self.slots.closed(slot)
        self._forget()
        self.save_all()
        self._report(ended)
        self.publish()

    def _draw(self, account: Account, snapshot: Snapshot) -> None:
        rows, beside = account.take_map_rows(), account.course.beside()
        if rows is None:
            return
        with self.boundary.guard("map", "draw", recovers=True):
            reference, about = None if beside is None else beside.reference, snapshot.provenance
            self.maps.draw(snapshot.space, rows, reference, ended=about.time, of=about.rows)

    def draw_wanted(self) -> None:
        """Add t-SNE to a map that somebody looks at, where it is time for one."""
        with self.boundary.guard("map", "spread", recovers=True):
            self.maps.spread()

    def confirm(self, space: Space) -> None:
        """Say that what is shown of a Space holds now; what was restored is not shown, and stays as old as it is."""
        account = self.accounts.get(space)
        if account is not None and account.fresh:
            with self.boundary.guard("sink", "metrics"):
                self.pages.remember({space: self._clock()})

    def _forget(self) -> None:
        if self._settings.expires is None:
            return
        gone = self.slots.forget(self._settings.expires)
        for space in gone:
            self.accounts.pop(space, None)
        if gone:
            self.pages.forget(gone)
            self.maps.forget(gone)
            with self.boundary.guard("store", "forget"):
                self.store.forget(gone)
                self.boundary.recover("store", "forget")

    def save_all(self) -> None:
        """Save what the store lacks."""
        self._save([self.own, *self.accounts.values()])

    def _save(self, accounts: Iterable[Account]) -> None:
        """Save what the store lacks; what fails is tried again the next time, and stays in the inbox till then."""
        saved: list[tuple[Account, Saved]] = []
        size = 0
        for account in [account for account in accounts if account.dirty]:
            with account.boundary.guard("store", "window"):
                saved.append((account, account.saved()))
                size += len(saved[-1][1].window or b"")
                account.boundary.recover("store", "window")
            if size >= SAVED_BYTES:  # all open windows at once, packed, would take as much again as they do
                self._store(saved)
                saved, size = [], 0
        self._store(saved)

    def _store(self, saved: Sequence[tuple[Account, Saved]]) -> None:
        """Save some accounts in one transaction."""
        if saved:
            with self.boundary.guard("store", "save"):
                self.store.save([each for _, each in saved])
                self.boundary.recover("store", "save")
                for account, _ in saved:
                    account.settle()

    def _report(self, ended: float) -> None:
        seconds = self._spent()
        served = self.tally.news(
            spaces=len(self.accounts),
            waiting=self.slots.parcels,
            waiting_bytes=self.slots.size,
            state_bytes=self.store.size,
            saved_at=self.store.saved_at,
            unrestored=self.unrestored,
        )
        errors = sum((each.new_errors() for each in self.accounts.values()), self.own.new_errors())
        errors += self._own_errors()
        off = list(self.boundary.off)
        snapshot = report(served, time=ended, seconds=seconds - self._seconds, errors=errors, off=off)
        self._seconds = seconds
        judgement = self.own.publish(snapshot)
        if judgement is not None:
            self._news.append(judgement)

    def _own_errors(self) -> Counter[tuple[str, str]]:
        errors = Counter(self.boundary.errors)
        since, self._errors = errors - self._errors, errors
        return since

    def publish(self) -> None:
        """Show and deliver what was judged since the last time."""
        news, self._news = self._news, []
        if not news:
            return
        with self.boundary.guard("sink", "metrics"):
            self.pages.write([(judgement.snapshot, judgement.verdicts) for judgement in news])
        for sink in self._sinks:
            for judgement in news:  # without its window: sinks get what was measured, not what still merges
                judgement.deliver(sink, self.boundary, windows=self.windows)


def _role(kept: Kept) -> str:
    """Return the role of a Space that was kept, of whatever of it can be read."""
    roles = [str(snapshot.get("provenance", {}).get("role", "")) for snapshot in kept.snapshots[-1:]]
    parcels = [kept.window] if kept.window is not None else []
    for data in (*parcels, *(data for _, data in kept.entries[:1])):
        try:
            roles.append(Parcel.from_bytes(data).role)
        except InputError:
            log.warning("embedwatch: a stored parcel cannot be read")
    return next(filter(None, roles), "vectors")
