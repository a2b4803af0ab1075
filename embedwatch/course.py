"""Course: one Space of a live model through time, from rows to verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.statistic import Statistic
from embedwatch.core.verdict import Verdict
from embedwatch.judging import Judge
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
        if boundary.is_off("sink", sink.name) and windows % RETRY:
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
    """

    space: Space
    role: str
    statistics: Callable[[], Sequence[Statistic[Any]]]
    judge: Judge
    boundary: Boundary
    names: Names | None = None
    history: History = field(default_factory=lambda: History(capacity=REMEMBERED, keep="even"))
    last: Judgement | None = None

    def __post_init__(self) -> None:
        self.window = self._fresh()

    def _fresh(self) -> Window:
        return Window(self.statistics(), boundary=self.boundary)

    def update(self, batch: Any) -> None:
        """Add a batch to the open window."""
        self.window.update(batch)

    def restart(self) -> None:
        """Open another window: what is in this one is judged elsewhere, or not at all."""
        self.window = self._fresh()

    def expected(self) -> Snapshot:
        """Return a Snapshot without rows: what will be measured, counters at zero."""
        return self._fresh().snapshot(self.space, role=self.role)

    def close(self, ended: float, *, more: Sequence[Measurement] = (), **provenance: Any) -> Judgement | None:
        """Close the window, measure and judge it; `None` where it holds no rows."""
        if not self.window.rows:
            return None
        window, self.window = self.window, self._fresh()
        window.close(ended)
        snapshot = window.snapshot(self.space, role=self.role, **provenance)
        judgement = self.publish(replace(snapshot, measurements=(*snapshot.measurements, *more)), window.exhibits)
        return replace(judgement, window=window)

    def publish(self, snapshot: Snapshot, exhibits: Exhibits = lambda names: []) -> Judgement:
        """Judge a Snapshot against those before it, and make the exhibits that verdicts cite which are not ok."""
        verdicts = tuple(self.judge.judge(snapshot, history=self.history))
        graver = [verdict for verdict in verdicts if verdict.status in ("warn", "fail")]
        cited = sorted({name for verdict in graver for name in verdict.evidence.exhibits})
        made: list[Exhibit] = []
        with self.boundary.guard("exhibit", "names", recovers=True):
            found = exhibits(cited) if cited else []
            made += found if self.names is None else [exhibit.with_names(self.names) for exhibit in found]
        self.last = Judgement(snapshot, verdicts, tuple(made))
        self.history.append(snapshot)
        return self.last
