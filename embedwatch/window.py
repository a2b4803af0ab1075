"""Windows: closed stretches of rows of one Space, and their bounded ring."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import takewhile
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import MergeError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.statistic import Statistic

__all__ = ["Window", "Windows", "library_versions"]

AnyStatistic = Statistic[Any]
LIBRARIES = ("embedwatch", "torch", "transformers", "faiss-cpu", "numpy")


class Window:
    """A stretch of rows: one Statistic of each sort, fed together.

    A Statistic that raises is counted at the boundary and left out from then on: its state may lack rows.

    Args:
        statistics: empty ones, each with its own name.
        boundary: where exceptions of statistics end.
        started: seconds since the epoch.
    """

    def __init__(
        self, statistics: Sequence[AnyStatistic], *, boundary: Boundary | None = None, started: float | None = None
    ) -> None:
        self.statistics: dict[str, AnyStatistic] = {statistic.name: statistic for statistic in statistics}
        self.boundary = boundary or Boundary()
        self.started = time.time() if started is None else started
        self.ended: float | None = None
        self.rows = 0
        self.dimension: int | None = None
        self.failed = {name for name in self.statistics if self.boundary.is_off("statistic", name)}
        """Names of the statistics that are left out."""

    def update(self, batch: Any) -> None:
        """Feed a batch to every Statistic of its kind; one of another dimension is refused whole, and counted."""
        dimension: int | None = getattr(batch, "dimension", None)
        accepted = self.dimension is None or dimension in (None, self.dimension)
        with self.boundary.guard("window", "dimension", recovers=True):
            _check(accepted, f"rows must have {self.dimension} dimensions like those before, got {dimension}")
        if not accepted:
            return
        for name, statistic in self.statistics.items():
            if statistic.consumes == batch.kind and name not in self.failed:
                self.failed.add(name)  # until it has succeeded
                with self.boundary.guard("statistic", name):
                    statistic.update(batch)
                    self.failed.discard(name)
        self.rows += len(batch)
        self.dimension = self.dimension if dimension is None else dimension

    def merge(self, other: Window) -> None:
        """Add the rows of a window of the same statistics. The other is left as it was."""
        if set(other.statistics) != set(self.statistics):
            raise UsageError(
                f"`other` must hold the statistics {sorted(self.statistics)}, got {sorted(other.statistics)}; "
                "merge windows of one configuration"
            )
        self.failed |= other.failed
        for name, statistic in self.statistics.items():
            if name not in self.failed:
                self.failed.add(name)
                with self.boundary.guard("merge", name):
                    statistic.merge(other.statistics[name])
                    self.failed.discard(name)
        self.rows += other.rows
        self.dimension = other.dimension if self.dimension is None else self.dimension
        self.started = min(self.started, other.started)
        self.ended = max((end for end in (self.ended, other.ended) if end is not None), default=None)

    def close(self, ended: float) -> None:
        """Say that no more rows come; what saw them all has recovered from earlier failures."""
        self.ended = ended
        for name in self.statistics.keys() - self.failed:
            self.boundary.recover("statistic", name)

    def measurements(self) -> list[Measurement]:
        """Return the measurements of every Statistic; those of one that did not see all rows are without value."""
        found: list[Measurement] = []
        for name, statistic in self.statistics.items():
            measured = [metric.missing() for metric in statistic.metrics]
            if name not in self.failed:
                with self.boundary.guard("compute", name, recovers=True):
                    measured = statistic.compute()
            found += measured
        return found

    def exhibits(self, names: Sequence[str] | None = None) -> list[Exhibit]:
        """Return the exhibits of these names, or all."""
        found: list[Exhibit] = []
        for name, statistic in self.statistics.items():
            if name not in self.failed:
                with self.boundary.guard("exhibit", name, recovers=True):
                    found += statistic.exhibits()
        return [exhibit for exhibit in found if names is None or exhibit.name in names]

    def snapshot(
        self,
        space: Space,
        *,
        step: int | None = None,
        fingerprint: str = "",
        coverage: Mapping[str, int] | None = None,
        notes: Sequence[str] = (),
        role: str = "",
        serving: bool = False,
    ) -> Snapshot:
        """Return everything measured, with provenance."""
        provenance = Provenance(
            time=time.time() if self.ended is None else self.ended,
            rows=self.rows,
            dimension=self.dimension,
            step=step,
            fingerprint=fingerprint,
            coverage=dict(coverage or {}),
            versions=library_versions(),
            notes=tuple(notes),
            role=role,
            serving=serving,
        )
        return Snapshot(space, tuple(self.measurements()), provenance)


def _check(held: object, message: str) -> None:
    if not held:
        raise MergeError(message)


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Return the versions of embedwatch and of the libraries that compute."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


class Windows:
    """The open window of one Space and a ring of its last closed ones.

    `flush` swaps the open window for a fresh one, which is a change of one pointer; the closed window is never updated
    again, so another thread may compute on it. Longer windows are merges of shorter ones.

    Args:
        make: returns fresh empty statistics.
        ring: how many closed windows are kept.
        boundary: where exceptions of statistics end.
        clock: seconds since the epoch.

    Example:
        >>> windows = Windows(list, ring=3)
        >>> windows.flush() is None
        True
    """

    def __init__(
        self,
        make: Callable[[], Sequence[AnyStatistic]],
        *,
        ring: int = 60,
        boundary: Boundary | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if ring < 1:
            raise UsageError(f"`ring` must be at least 1, got {ring}; name how many closed windows to keep")
        self._make = make
        self._clock = clock
        self._boundary = boundary or Boundary()
        self._closed: deque[Window] = deque(maxlen=ring)
        self._lock = threading.Lock()
        self._open = self._fresh()

    def _fresh(self) -> Window:
        return Window(self._make(), boundary=self._boundary, started=self._clock())

    def update(self, batch: Any) -> None:
        """Feed a batch to the open window. Safe from several threads."""
        with self._lock:
            self._open.update(batch)

    def flush(self) -> Window | None:
        """Close the open window and return it; `None`, and no change, where it holds no rows."""
        fresh = self._fresh()
        with self._lock:
            if not self._open.rows:
                return None
            closed, self._open = self._open, fresh
            closed.close(self._clock())
            self._closed.append(closed)
        return closed

    def __len__(self) -> int:
        return len(self._closed)

    def last(self, count: int) -> Window | None:
        """Return the merge of the last `count` closed windows, or of as many as there are; `None` for none.

        Where the dimension of the rows changed (another model), only windows since then are merged.
        """
        with self._lock:
            newest = list(self._closed)[-count:][::-1] if count > 0 else []
        if not newest:
            return None
        chosen = list(takewhile(lambda window: window.dimension == newest[0].dimension, newest))[::-1]
        merged = self._fresh()
        merged.started = chosen[0].started
        for window in chosen:
            merged.merge(window)
        return merged
