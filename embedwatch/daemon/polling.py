"""Polling: checkpoints and files of vectors are looked at on a schedule; what is new and whole is audited."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from embedwatch.auditing import Audit, audit
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.daemon.heart import Draining, Full, Heart
from embedwatch.evaluator import Evaluator
from embedwatch.parcels import parcel_of_snapshot
from embedwatch.sources import open_source

__all__ = ["Polled", "Polling"]

log = logging.getLogger(__name__)

SETTLE = 5.0
"""Seconds that a checkpoint or file has to stay as it is before it counts as written."""
LOOK = 0.5
"""Seconds between two looks at the schedule."""
SHARE = 0.5
"""Auditing takes at most this share of the time: it rests for as long as it worked."""
BACKLOG = 3
"""Of the checkpoints that are there at the start, so many are audited: the newest."""
STEP = re.compile(r"(\d+)(?=\D*$)")
"""The last number in a name is the step: `step-00000200`, `checkpoint-500`, `epoch=1-step=500.safetensors`."""
NUMBER_BYTES = 7
"""Of a digest, so that it is a whole number that JSON and SQLite hold."""
RUN_FOLDER = "checkpoints"
"""Where a run keeps its checkpoints, if the folder of the run is named."""

Signature = str


@dataclass(frozen=True)
class Polled:
    """What is looked at.

    Args:
        kind: `checkpoints`: a folder in which each checkpoint that appears is audited; `files`: a file, a folder that
            is one source (Parquet), or a folder of files.
        path: where it is.
        name: label `model` of what is found.
        every: seconds between two looks.
    """

    kind: Literal["checkpoints", "files"]
    path: Path
    name: str
    every: float = 300.0

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise UsageError(f"`every` must be above 0 seconds, got {self.every!r}; 300 is usual")


@dataclass(frozen=True)
class _Item:
    """One thing to audit, as it was when it was looked at."""

    path: Path
    segment: str
    step: int | None
    signature: Signature


@dataclass
class _Watched:
    polled: Polled
    due: float = 0.0
    looked: bool = False
    seen: dict[Path, tuple[Signature, float]] = field(default_factory=dict)
    """Path to how it was, and since when it has been so."""
    done: dict[Path, Signature] = field(default_factory=dict)


class Polling:
    """Audits what is new, on a thread of its own, and hands the Snapshots to the heart, which judges them in order.

    What is being written is left alone until it has stayed the same for `settle` seconds. What cannot be read is
    counted, and tried again when it has changed. What was audited before a restart is known.

    Args:
        heart: takes the Snapshots.
        sources: what is looked at.
        only, skip: names of statistics, measurements or checks to keep, to leave out.
        settle: seconds.
        ticks: seconds of a clock that never jumps.
    """

    def __init__(
        self,
        heart: Heart,
        sources: Sequence[Polled],
        *,
        only: Sequence[str] = (),
        skip: Sequence[str] = (),
        settle: float = SETTLE,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heart, self._only, self._skip, self._settle, self._ticks = heart, only, skip, settle, ticks
        self._watched = [_Watched(polled) for polled in sources]
        self.boundary = Boundary()
        self.audited = 0
        """Checkpoints and files that were audited and taken."""
        self._rest_until = 0.0
        self._stopped = threading.Event()
        self._evaluator: Evaluator | None = None

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """What could not be looked at or audited, by (stage, name of the source)."""
        return self.boundary.errors

    def start(self) -> None:
        """Begin to look."""
        if self._evaluator is None:
            self._evaluator = Evaluator(self.boundary, idle=self.look, period=LOOK)

    def close(self) -> None:
        """End after the audit that is going on. Calling it again does nothing."""
        self._stopped.set()
        if self._evaluator is not None:
            self._evaluator.close()

    def look(self) -> None:
        """Look at what is due, and audit what is new and settled."""
        for watched in self._watched:
            now = self._ticks()
            if now >= watched.due and now >= self._rest_until and not self._stopped.is_set():
                watched.due = now + watched.polled.every
                with self.boundary.guard("poll", watched.polled.name):
                    self._look_at(watched, now)

    def _look_at(self, watched: _Watched, now: float) -> None:
        items = list(_items(watched.polled))
        there = {item.path for item in items}
        watched.seen = {path: how for path, how in watched.seen.items() if path in there}
        watched.done = {path: how for path, how in watched.done.items() if path in there}
        if not watched.looked and watched.polled.kind == "checkpoints":
            watched.done.update({item.path: item.signature for item in items[:-BACKLOG]})
        watched.looked = True
        for item in items:
            if watched.done.get(item.path) == item.signature:
                continue
            signature, since = watched.seen.get(item.path, ("", now))
            if signature != item.signature:
                since = now
            watched.seen[item.path] = item.signature, since
            if now - since < self._settle or self._ticks() < self._rest_until or self._stopped.is_set():
                watched.due = min(watched.due, max(now + self._settle, self._rest_until))
                continue
            watched.done[item.path] = item.signature
            self._audit(watched, item)

    def _audit(self, watched: _Watched, item: _Item) -> None:
        polled = watched.polled
        sender, number = f"polling {polled.name}", _number(item)
        if self._heart.knows(sender, number):
            return
        began = self._ticks()
        with self.boundary.guard("audit", polled.name):
            try:
                found = audit(item.path, only=self._only, skip=self._skip)
                if _signature(item.path) != item.signature:
                    raise InputError(
                        f"{item.path.name} must stay as it is while it is read, it changed; it is read again"
                    )
                self._hand_over(polled, item, found, sender=sender, number=number)
                self.audited += 1
            except (Full, Draining):
                watched.done.pop(item.path)  # the next time
            except FileNotFoundError:
                log.info("embedwatch: %s went away before it was read", item.path.name)
        self._rest_until = self._ticks() + (self._ticks() - began) * (1 / SHARE - 1)

    def _hand_over(self, polled: Polled, item: _Item, found: Audit, *, sender: str, number: int) -> None:
        """Give the heart the Snapshots; the first one last, whose number says that all were taken."""
        for place, judged in reversed(list(enumerate(found.spaces))):
            snapshot = _labelled(judged.snapshot, polled.name, item)
            if place == 0 or not self._is_last(snapshot):
                self._heart.accept(parcel_of_snapshot(snapshot, sender=sender, number=number + place))

    def _is_last(self, snapshot: Snapshot) -> bool:
        """Return whether the Space shows this very content already."""
        known = self._heart.space(snapshot.space)
        provenance = {} if known is None else known.get("snapshot", {}).get("provenance", {})
        fingerprint, step = snapshot.provenance.fingerprint, snapshot.provenance.step
        return bool(fingerprint) and (provenance.get("fingerprint"), provenance.get("step")) == (fingerprint, step)


def _labelled(snapshot: Snapshot, name: str, item: _Item) -> Snapshot:
    space = Space(name, snapshot.space.place, item.segment, snapshot.space.head)
    provenance = replace(snapshot.provenance, step=item.step)
    return replace(snapshot, space=space, provenance=provenance)


def _items(polled: Polled) -> Iterator[_Item]:
    """Yield what is there, the oldest step first.

    Raises:
        InputError: if nothing is there.
    """
    path = polled.path
    if not path.exists():
        raise InputError(f"{path} must exist to be looked at, it does not; make it, or correct the path")
    found = _checkpoints(path) if polled.kind == "checkpoints" else _files(path)
    for item, segment, step in found:
        with suppress(FileNotFoundError):  # a checkpoint that was just dropped
            yield _Item(item, segment, step, _signature(item))


def _checkpoints(path: Path) -> list[tuple[Path, str, int | None]]:
    folder = path / RUN_FOLDER if (path / RUN_FOLDER).is_dir() else path
    found = []
    for child in folder.iterdir():
        match = STEP.search(child.name)
        if match and not child.name.startswith(".") and not child.is_symlink() and _is_model(child):
            found.append((child, "all", int(match[1])))
    return sorted(found, key=lambda item: (item[2], item[0].name))


def _is_model(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".safetensors"


def _files(path: Path) -> list[tuple[Path, str, int | None]]:
    if path.is_file() or _is_one_source(path):
        return [(path, "all", None)]
    children = sorted(child for child in path.iterdir() if child.is_file() and not child.name.startswith("."))
    return [(child, child.name, None) for child in children]


def _is_one_source(folder: Path) -> bool:
    try:
        open_source(folder)
    except EmbedwatchError:
        return False
    return True


def _signature(path: Path) -> Signature:
    """Return a digest of names, sizes and times of what lies there; contents are not read."""
    digest = hashlib.blake2b(digest_size=NUMBER_BYTES)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        stat = file.stat()
        if not file.is_dir():
            digest.update(f"{file.relative_to(path)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "replace"))
    return digest.hexdigest()


def _number(item: _Item) -> int:
    """Return the number of a delivery: the same for the same content at the same place."""
    digest = hashlib.blake2b(f"{item.path}\0{item.signature}".encode("utf-8", "replace"), digest_size=NUMBER_BYTES)
    return int.from_bytes(digest.digest(), "big")
