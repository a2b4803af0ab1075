"""Publisher: what was written last of each Space, as one exposition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from embedwatch import exposition
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import Verdict
from embedwatch.exposition import Family, clash
from embedwatch.sinks._encoding import Block, ClientFamily, Publication, encode
from embedwatch.sinks._label_values import LabelValues
from embedwatch.sinks._series import Labels, Series
from embedwatch.sinks._space_series import STAGE, VERDICTS, SpaceSeries

__all__ = ["MAX_SERIES", "MAX_VALUES", "Publisher"]

MAX_VALUES = 256
MAX_SERIES = 10_000
SELF = "self"
"""Name of the collector of what is exposed about the exposition."""
SINGLE: Labels = ()
SIZES = (exposition.SERIES, exposition.SERIES_DROPPED)


class Publisher:
    """Takes Snapshots, and delivers an exposition of all Spaces each time. Safe to call from several threads.

    Args:
        deliver: takes each new Publication; called by one thread at a time.
        max_values: distinct values of one label; further ones are folded into `other`.
        max_series: series in one exposition; beyond, families of the newest Spaces are left out.
        expires: seconds after which a Space that is not heard of is left out; `None` keeps it.
        clock: seconds since the epoch.

    Raises:
        UsageError: if an argument is out of range.
    """

    def __init__(
        self,
        deliver: Callable[[Publication], None],
        *,
        max_values: int = MAX_VALUES,
        max_series: int = MAX_SERIES,
        expires: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, number in (("max_values", max_values), ("max_series", max_series), ("expires", expires)):
            if number is not None and not number > 0:
                raise UsageError(f"`{name}` must be positive, got {number}; leave it out for the default")
        self._deliver = deliver
        self._max_series = max_series
        self._expires = expires
        self._clock = clock
        self._boundary = Boundary()
        self._values = LabelValues(max_values)
        self._spaces: dict[Labels, SpaceSeries] = {}
        self._published = Publication([])
        self._lock = threading.Lock()

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict]) -> None:
        """Take over one window, and publish."""
        self.write_all([(snapshot, verdicts)])

    def write_all(self, windows: Iterable[tuple[Snapshot, Sequence[Verdict]]]) -> None:
        """Take over windows, and publish once: an exposition costs as much as all Spaces together."""
        with self._lock:
            for snapshot, verdicts in windows:
                space = self._space(snapshot.space)
                space.heard = self._clock()
                space.write(snapshot, verdicts)
            self._publish()

    def remember(self, closed: Mapping[Space, float]) -> None:
        """Say of Spaces when their last window closed, and nothing else, and publish."""
        with self._lock:
            for each, when in closed.items():
                space = self._space(each)
                space.heard = self._clock()
                space.remember(when)
            self._publish()

    def forget(self, spaces: Iterable[Space]) -> None:
        """Leave out Spaces from now on, and publish."""
        with self._lock:
            gone = set(spaces)
            self._spaces = {labels: held for labels, held in self._spaces.items() if held.space not in gone}
            self._publish()

    def expect(self, snapshots: Sequence[Snapshot]) -> None:
        """Show Spaces that will come, with their counters at zero, and publish."""
        with self._lock:
            for snapshot in snapshots:
                space = self._space(snapshot.space)
                space.heard = max(space.heard, self._clock())
                space.expect(snapshot)
            self._publish()

    def publish(self) -> None:
        """Publish what is there."""
        with self._lock:
            self._publish()

    def _space(self, space: Space) -> SpaceSeries:
        labels = tuple((name, self._values.fold(name, text)) for name, text in space.labels().items())
        if labels not in self._spaces:
            self._spaces[labels] = SpaceSeries(space, labels, self._values, self._boundary)
        return self._spaces[labels]

    def collect(self) -> Iterable[ClientFamily]:
        """Return the families published last: this is a collector for a registry of prometheus_client."""
        return self._published.collect()

    def _publish(self) -> None:
        now = self._clock()
        if self._expires is not None:
            alive = {labels: space for labels, space in self._spaces.items() if now - space.heard <= self._expires}
            self._spaces = alive
        blocks, clashing = self._without_clashes()
        own = self._own(now, clashing)
        kept, dropped = _fitting(blocks, self._max_series - _total(own) - len(SIZES))
        sizes = (_total(own) + _total(kept) + len(SIZES), dropped)
        own += encode(_single(family, size) for family, size in zip(SIZES, sizes, strict=True))
        self._published = Publication([*own, *kept])
        self._deliver(self._published)

    def _without_clashes(self) -> tuple[list[Block], set[str]]:
        """Return the blocks of all Spaces whose names nobody else claims, and the collectors of the others."""
        names = _Names()
        found: list[Block] = []
        clashing = set()
        for space in self._spaces.values():
            for block in space.blocks:
                rival = names.claim(block.family)
                if rival is None:
                    found.append(block)
                    continue
                clashing.add(space.collector)
                with self._boundary.guard(STAGE, space.collector):
                    raise clash(block.family, rival)
        return found, clashing

    def _own(self, now: float, clashing: set[str]) -> list[Block]:
        """Return what is exposed about the exposition; what cannot be told counts as a collector that failed."""
        series: list[Series] = []
        done = False
        with self._boundary.guard(STAGE, SELF):
            series = self._about(now)
            done = True
        whole = {SELF: done, VERDICTS: True}
        for space in self._spaces.values():
            for name, held in space.whole.items():
                whole[name] = whole.get(name, True) and held and name not in clashing
        success = Series(exposition.COLLECTOR_SUCCESS)
        for name, held in whole.items():
            success.put((("collector", name),), int(held))
        return encode([*series, success])

    def _about(self, now: float) -> list[Series]:
        steps = Series(exposition.TRAINING_STEP)
        for space in sorted(self._spaces.values(), key=lambda space: -space.heard):
            if space.step is not None:
                steps.put(space.labels[:1], space.step)
        overflow = Series(exposition.LABEL_OVERFLOW)
        for name, count in self._values.overflow.items():
            overflow.put((("label", name),), count)
        version = Series(exposition.BUILD_INFO, {(("version", exposition.VERSION),): 1})
        limit = _single(exposition.SERIES_LIMIT, self._max_series)
        return [version, steps, overflow, limit, _single(exposition.LAST_PUBLICATION, now)]


class _Names:
    """Who claims which name: whoever comes first."""

    def __init__(self) -> None:
        self._shown: dict[str, Family] = {}
        self._claimed: dict[str, Family] = {}

    def claim(self, family: Family) -> Family | None:
        """Let a family have its names, or return the one that has one of them already.

        Texts and labels of what is one family may differ, as between versions of a plug-in.
        """
        if self._shown.get(family.name) is family:
            return None
        for name in sorted(family.claims):
            other = self._claimed.get(name)
            if other is not None and (other.name, other.kind) != (family.name, family.kind):
                return other
        self._shown.setdefault(family.name, family)
        self._claimed.update(dict.fromkeys(family.claims, family))
        return None


def _single(family: Family, value: float) -> Series:
    return Series(family, {SINGLE: value})


def _total(blocks: Iterable[Block]) -> int:
    return sum(block.size for block in blocks)


def _fitting(blocks: Iterable[Block], room: int) -> tuple[list[Block], int]:
    """Return the blocks that find room, first come first served, and the number of series of the others."""
    kept, dropped = [], 0
    for block in blocks:
        if block.size <= room:
            kept.append(block)
            room -= block.size
        else:
            dropped += block.size
    return kept, dropped
