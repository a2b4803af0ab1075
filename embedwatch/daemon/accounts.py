"""Account: one Space in the daemon. What came goes into its Course, and is owed to the store until it is saved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.core.verdict import Status, Verdict
from embedwatch.course import Course, Judgement
from embedwatch.course_maker import CourseMaker
from embedwatch.daemon.chronicle import Chronicle
from embedwatch.daemon.entries import joined
from embedwatch.daemon.gathered import Gathered, compared_names
from embedwatch.daemon.maps import MapRows
from embedwatch.daemon.slots import Content, Entry, Layout
from embedwatch.daemon.store import Kept, Saved, VerdictState
from embedwatch.parcels import Parcel, open_batch, open_more, open_snapshot, open_window, parcel_of_window
from embedwatch.references import Reference
from embedwatch.window import Window

__all__ = ["Account", "Accounts", "Opened", "layout_of", "opened"]

OURSELVES = "daemon"
"""Sender of the windows that are saved."""
MOST_OWED = 20
"""Closed windows of a Space that wait for a disk that takes nothing; of more, the oldest are not kept."""


def layout_of(window: Window) -> Layout:
    """Return what has to be equal for windows to be merged: names and settings of the statistics.

    Those that compare with a reference are not among them: they are left out where windows of others join.
    """
    plain = [(name, each) for name, each in window.statistics.items() if not each.needs_reference]
    return frozenset((name, json.dumps(each.settings(), sort_keys=True, default=str)) for name, each in plain)


class Opened(NamedTuple):
    """What a parcel holds; of a window also its layout, and the measurements that no Statistic delivers."""

    content: Content
    layout: Layout | None = None
    more: tuple[Measurement, ...] = ()


def opened(parcel: Parcel, boundary: Boundary) -> Opened:
    """Return what a parcel holds.

    Raises:
        InputError: if it is not what it claims to be.
        MergeError: if a state does not fit its Statistic.
    """
    if parcel.kind == "rows":
        return Opened(open_batch(parcel))
    if parcel.kind == "snapshot":
        return Opened(open_snapshot(parcel))
    window = open_window(parcel, boundary)
    return Opened(window, layout_of(window), open_more(parcel))


class Account:
    """One Space: its Course, the provenance of its open window, and what is not saved yet. Of one thread at a time.

    Args:
        course: what rows and states go into.
    """

    def __init__(self, course: Course) -> None:
        self.course = course
        self.boundary = course.boundary
        self.fresh = False
        """Whether its last judgement was made since the start."""
        self.windows = 0
        """Judged since the start."""
        self.since: dict[str, tuple[Status, float]] = {}
        """Check to its status, and since when it has had it."""
        self.owed = 0
        """Bytes in the inbox of the store that are in the window already."""
        self.judged_by: dict[str, str] = {}
        """Check to the fingerprint of the reference that its last verdict rests on, where it rests on one."""
        self.chronicle = Chronicle()
        self._gathered = Gathered()
        self._map_rows: MapRows | None = None
        self._entries: list[int] = []
        self._unsaved: list[Judgement] = []
        self._errors: Counter[tuple[str, str]] = Counter()

    @property
    def dirty(self) -> bool:
        """Whether the store lacks anything."""
        return bool(self._entries or self._unsaved)

    @property
    def compared(self) -> bool:
        """Whether its rows are compared with a reference, here or where they come from."""
        last = self.course.last
        return self.course.beside() is not None or (last is not None and bool(last.snapshot.provenance.reference))

    def apply_all(self, entries: Sequence[Entry]) -> list[Judgement]:
        """Take parcels into the open window, and return the judgements of Snapshots among them."""
        self._entries += [entry.number for entry in entries]
        self.owed += sum(entry.size for entry in entries)
        found = [self._apply(entry) for entry in joined(entries)]
        return [judgement for judgement in found if judgement is not None]

    def drop(self, number: int) -> None:
        """Let a parcel that cannot be read leave the inbox."""
        self._entries.append(number)

    def publish(self, snapshot: Snapshot) -> Judgement | None:
        """Judge a Snapshot that no window stands behind."""
        return self._judged(lambda: self.course.publish(snapshot))

    def _apply(self, entry: Entry) -> Judgement | None:
        """Take a parcel; a Snapshot is judged at once. What fails is counted, and gone."""
        content = entry.content
        if isinstance(content, Snapshot):
            return self.publish(content)
        with self.boundary.guard("window", "parcel"):
            self._gathered.add(entry.parcel, entry.more)
            if isinstance(content, VectorBatch):
                self.course.update(content)
                self._sample(content)
            else:
                self.course.merge(content)
        return None

    def _sample(self, batch: VectorBatch) -> None:
        """Keep some rows of the open window for its map."""
        with self.boundary.guard("map", "rows"):
            if batch.dimension == self.course.window.dimension:
                self._map_rows = self._map_rows or MapRows(batch.dimension)
                self._map_rows.add(batch)

    def take_map_rows(self) -> MapRows | None:
        """Return what was kept for the map of the window that ends, and keep it no longer."""
        found, self._map_rows = self._map_rows, None
        return found

    def close(self, ended: float) -> Judgement | None:
        """Close the window, measure and judge it; `None` where it holds nothing."""
        if not self.course.window.rows:
            return None
        gathered, self._gathered = self._gathered, Gathered()
        return self._judged(lambda: self.course.close(ended, more=gathered.told(), **gathered.closing()))

    def _judged(self, judge: Callable[[], Judgement | None]) -> Judgement | None:
        judgement = None
        with self.boundary.guard("window", "judging"):
            judgement = judge()
        if judgement is not None:
            judgement = replace(judgement, window=None)  # a disk that takes nothing must not keep closed windows here
            self.fresh = True
            self.windows += 1
            self._date(judgement.verdicts, judgement.snapshot)
            self._unsaved = [*self._unsaved, judgement][-MOST_OWED:]
        return judgement

    def _date(self, verdicts: Sequence[Verdict], snapshot: Snapshot) -> None:
        time, comparing = snapshot.provenance.time, _comparing()
        self.chronicle.add(snapshot, verdicts, {check: status for check, (status, _) in self.since.items()})
        self.chronicle.follow(self.course.history, verdicts)
        self.judged_by = {each.check: snapshot.provenance.reference for each in verdicts if each.check in comparing}
        for verdict in verdicts:
            status, since = self.since.get(verdict.check, (None, time))
            self.since[verdict.check] = (verdict.status, since if status == verdict.status else time)

    def saved(self) -> Saved:
        """Return what the store has to take over."""
        window = self.course.window
        last = self._unsaved[-1].verdicts if self._unsaved else ()
        return Saved(
            self.course.space,
            self._packed(window) if window.rows else None,
            tuple(self._entries),
            [judgement.snapshot.to_json() for judgement in self._unsaved],
            [self._state(verdict) for verdict in last],
            self.chronicle.news(),
        )

    def _state(self, verdict: Verdict) -> VerdictState:
        since, mark = self.since[verdict.check][1], self.judged_by.get(verdict.check, "")
        return VerdictState(verdict.check, since, verdict.to_json(), mark)

    def _packed(self, window: Window) -> bytes:
        provenance = Provenance(
            window.started,
            window.rows,
            window.dimension,
            role=self.course.role,
            reference=self._gathered.reference,
            **self._gathered.provenance(),
        )
        snapshot = Snapshot(self.course.space, self._gathered.more, provenance)
        return parcel_of_window(window, snapshot, sender=OURSELVES, number=0).to_bytes()

    def settle(self) -> None:
        """Say that the store has all of it."""
        self._entries, self._unsaved, self.owed = [], [], 0
        self.chronicle.settle()

    def restore(self, kept: Kept) -> int:
        """Take over what the store had, but the inbox; return the number of parts that could not be read."""
        tried, done = 0, 0
        metrics: dict[Metric, Metric] = {}
        for snapshot in kept.snapshots:
            tried += 1
            with self.boundary.guard("restore", "snapshot"):
                self.course.history.append(_lean(Snapshot.from_json(snapshot), metrics))
                done += 1
        verdicts: list[Verdict] = []
        for state in kept.verdicts:
            if self._is_of_another(state.reference):
                continue
            tried += 1
            with self.boundary.guard("restore", "verdict"):
                verdicts.append(Verdict.from_json(state.verdict))
                self.since[state.name] = (verdicts[-1].status, state.since)
                if state.reference:
                    self.judged_by[state.name] = state.reference
                done += 1
        if len(self.course.history):
            self.course.last = Judgement(list(self.course.history)[-1], tuple(verdicts), ())
            self.chronicle.follow(self.course.history, verdicts)
        tried += 1
        with self.boundary.guard("restore", "chronicle"):
            self.chronicle.restore(kept.chapter)
            done += 1
        if kept.window is not None:
            tried += 1
            with self.boundary.guard("restore", "window"):
                parcel = Parcel.from_bytes(kept.window)
                self.course.window = open_window(parcel, self.boundary)
                self._gathered.add(parcel, open_more(parcel))
                done += 1
        return tried - done

    def _is_of_another(self, mark: str) -> bool:
        """Return whether a verdict rests on another reference than the one that rows are compared with now."""
        beside = self.course.beside()
        return bool(mark) and beside is not None and beside.reference.fingerprint != mark

    def new_errors(self) -> Counter[tuple[str, str]]:
        """Return the exceptions since the last time, by (stage, name)."""
        errors = Counter(self.boundary.errors)
        since, self._errors = errors - self._errors, errors
        return since

    def to_json(self, *, whole: bool = False) -> dict[str, Any]:
        """Return how the Space stands, in plain JSON types; all that is known of it where the whole is asked for."""
        last, window = self.course.last, self.course.window
        found: dict[str, Any] = {
            "space": self.course.space.labels(),
            "role": self.course.role,
            "dimension": window.dimension if last is None else last.snapshot.provenance.dimension,
            "open_rows": window.rows,
            "windows": self.windows,
            "fresh": self.fresh,
            "time": None if last is None else last.snapshot.provenance.time,
            "rows": 0 if last is None else last.snapshot.provenance.rows,
            "step": None if last is None else last.snapshot.provenance.step,
            "counts": {} if last is None else dict(Counter(verdict.status for verdict in last.verdicts)),
            "reference": self._reference(),
            **self.chronicle.to_json(),
        }
        if whole and last is not None:
            found["snapshot"] = last.snapshot.to_json()
            explained = ([list(each) for each in verdict.topics()] for verdict in last.verdicts)
            found["verdicts"] = [
                {**told, "explained": topics} for told, topics in zip(self.verdicts(), explained, strict=True)
            ]
            found["exhibits"] = [exhibit.to_json() for exhibit in last.exhibits]
        return found

    def _reference(self) -> dict[str, Any] | None:
        """Return what the next rows are compared with."""
        beside = self.course.beside()
        if beside is None:
            return None
        origin = beside.reference.origin
        return {"fingerprint": beside.reference.fingerprint, "rows": origin.rows, "created": origin.created}

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the last verdicts in plain JSON types.

        Each has since when it is so, when it was judged, and by which reference, where it rests on one.
        """
        last = self.course.last
        if last is None:
            return []
        time = last.snapshot.provenance.time
        return [
            {
                **verdict.to_json(),
                "since": self.since[verdict.check][1],
                "time": time,
                "fresh": self.fresh,
                **({"reference": mark} if (mark := self.judged_by.get(verdict.check)) else {}),
            }
            for verdict in last.verdicts
        ]


class Accounts:
    """Makes Accounts: each has its own boundary, so that what fails in one Space is not switched off in the others.

    Args:
        maker: of their Courses.
    """

    def __init__(self, maker: CourseMaker) -> None:
        self._maker = maker
        self._empty: dict[str, list[Statistic[Any]]] = {}
        """Role to statistics that say how much they can come to take."""
        self._comparing: WeakKeyDictionary[Reference, list[Statistic[Any]]] = WeakKeyDictionary()
        """The same of those that compare with a reference."""

    def make(self, space: Space, role: str) -> Account:
        """Return the Account of a Space that has nothing yet."""
        return Account(self._maker.make(space, role, Boundary()))

    def window_bytes(self, space: Space, role: str, content: Content) -> int:
        """Return the bytes that a window can come to take that holds this; 0 for a Snapshot, which needs none."""
        if isinstance(content, Snapshot):
            return 0
        if isinstance(content, Window):
            statistics = list(content.statistics.values())
        else:
            if role not in self._empty:
                self._empty[role] = self._maker.statistics(role)
            statistics = [*self._empty[role], *self._compared(space, role, content.dimension)]
        drawn = MapRows.memory(content.dimension) if isinstance(content, VectorBatch) else 0
        return drawn + sum(statistic.memory(content.dimension or 1) for statistic in statistics)

    def _compared(self, space: Space, role: str, dimension: int) -> list[Statistic[Any]]:
        """Return what compares rows of this dimension."""
        beside = self._maker.beside(space, role)
        if beside is None or not beside.fits(dimension):
            return []
        if beside.reference not in self._comparing:
            self._comparing[beside.reference] = beside.statistics()
        return self._comparing[beside.reference]

    def layout(self, role: str) -> Layout:
        """Return the layout of windows that begin with rows."""
        return layout_of(Window(self._maker.statistics(role)))


@lru_cache(maxsize=1)
def _comparing() -> frozenset[str]:
    """Return the checks whose verdict rests on a reference."""
    return frozenset(name for name, check in registered(Check).items() if compared_names().intersection(check.reads))


def _lean(snapshot: Snapshot, metrics: dict[Metric, Metric]) -> Snapshot:
    """Return a Snapshot that was read, with the declarations of those before it: it takes less than half."""
    shared = (replace(each, metric=metrics.setdefault(each.metric, each.metric)) for each in snapshot.measurements)
    return replace(snapshot, measurements=tuple(shared))
