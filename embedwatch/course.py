"""Course: one Space of a live model through time, from rows to verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embedwatch.batch import VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.core.verdict import Verdict
from embedwatch.judging import Judge
from embedwatch.references.beside import Beside
from embedwatch.references.gathering import Gathering
from embedwatch.window import Window

__all__ = ["Course", "Judgement"]

RETRY = 10
"""A sink that was switched off is tried again every so many windows: a disk may have room again."""
REMEMBERED = 200
"""Snapshots of a Space that checks can look back on: evenly chosen from the whole course, and the newest."""
Exhibits = Callable[[Sequence[str]], Sequence[Exhibit]]
"""Makes the exhibits of these names."""
Names = Callable[[Sequence[int]], Sequence[str]]


@dataclass(frozen=True)
class Judgement:
    """What a closed window came to.

    Args:
        snapshot: what was measured.
        verdicts: what checks made of it.
        exhibits: those that verdicts cite which are not ok.
        window: what was closed, for whom wants to merge it; not held any longer than the delivery takes.
    """

    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...]
    window: Window | None = None

    def deliver(self, sink: Sink, boundary: Boundary, *, windows: int) -> None:
        """Hand it to a sink; one that failed too often is tried again at every `RETRY`th window only."""
        if boundary.is_off("sink", sink.name) and (windows % RETRY or not windows):
            return
        with boundary.guard("sink", sink.name, recovers=True):
            if sink.wants_windows and self.window is not None:
                sink.write_window(self.window, self.snapshot)
            else:
                sink.write(self.snapshot, self.verdicts, self.exhibits)


@dataclass
class Course:
    """The open window of one Space, what was measured before, and the last judgement.

    Args:
        space: what is judged as one.
        role: what sort of place it is.
        statistics: makes fresh empty ones.
        judge: asks the checks.
        boundary: where exceptions of ours end.
        names: what people call the rows of its exhibits.
        beside: returns the reference that the next window is compared with; `None` where there is none.
    """

    space: Space
    role: str
    statistics: Callable[[], Sequence[Statistic[Any]]]
    judge: Judge
    boundary: Boundary
    names: Names | None = None
    beside: Callable[[], Beside | None] = lambda: None
    history: History = field(default_factory=lambda: History(capacity=REMEMBERED, keep="even"))
    last: Judgement | None = None
    gathering: Gathering | None = None
    """What makes a reference of the rows that come now."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Open another window: what is in this one is judged elsewhere, or not at all."""
        self._beside = self.beside()
        self.window = self._fresh(self._beside)

    def _fresh(self, beside: Beside | None) -> Window:
        compared = [] if beside is None else beside.statistics()
        return Window([*self.statistics(), *compared], boundary=self.boundary)

    def update(self, batch: Any) -> None:
        """Add a batch to the open window; rows that are compared are numbered through: what compares goes by order."""
        if self._beside is not None and isinstance(batch, VectorBatch):
            if batch.order is None:
                batch = batch.ordered(self.window.rows)
            if not self._beside.fits(batch.dimension):
                self._beside.leave(self.window)  # those of the right dimension would not be all of the window
        self.window.update(batch)
        if self.gathering is not None and isinstance(batch, VectorBatch):
            with self.boundary.guard("reference", self.space.place):
                self.gathering.update(batch)
            if self.gathering.is_over:
                self.gathering = None

    def merge(self, other: Window) -> None:
        """Add a window of others; what compares rows here has not seen theirs, and is left out."""
        if not self.window.rows:
            self.window = other
            return
        if self._beside is not None and not set(self._beside.names) <= set(other.statistics):
            self._beside.leave(self.window)
        self.window.merge(other)

    def expected(self) -> Snapshot:
        """Return a Snapshot without rows: what will be measured, counters at zero."""
        return self._fresh(self.beside()).snapshot(self.space, role=self.role)

    def close(
        self, ended: float, *, more: Sequence[Measurement] = (), reference: str = "", **provenance: Any
    ) -> Judgement | None:
        """Close the window, measure and judge it; `None` where it holds no rows.

        Args:
            ended: seconds since the epoch.
            more: measurements that no Statistic delivers.
            reference: fingerprint of what others compared the rows with, where they did.
            provenance: what a Snapshot says of where it comes from.
        """
        if not self.window.rows:
            return None
        window, beside = self.window, self._beside
        self.restart()
        window.close(ended)
        snapshot = window.snapshot(self.space, role=self.role, **provenance)
        about = replace(snapshot.provenance, reference=reference)
        snapshot = Snapshot(snapshot.space, (*snapshot.measurements, *more), about)
        return replace(self._publish(snapshot, window.exhibits, beside), window=window)

    def publish(self, snapshot: Snapshot, exhibits: Exhibits = lambda names: []) -> Judgement:
        """Judge a Snapshot against those before it, and make the exhibits that verdicts cite which are not ok."""
        return self._publish(snapshot, exhibits, self.beside())

    def _publish(self, snapshot: Snapshot, exhibits: Exhibits, beside: Beside | None) -> Judgement:
        snapshot, why = (snapshot, {}) if beside is None else beside.completed(snapshot)
        verdicts = tuple(self.judge.judge(snapshot, history=self.history, why=why))
        graver = [verdict for verdict in verdicts if verdict.status in ("warn", "fail")]
        cited = sorted({name for verdict in graver for name in verdict.evidence.exhibits})
        made: list[Exhibit] = []
        with self.boundary.guard("exhibit", "names", recovers=True):
            found = exhibits(cited) if cited else []
            made += found if self.names is None else [exhibit.with_names(self.names) for exhibit in found]
        self.last = Judgement(snapshot, verdicts, tuple(made))
        self.history.append(snapshot)
        return self.last
