"""Polling: checkpoints and files of vectors are looked at on a schedule; what is new and whole is audited."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from embedwatch.auditing import audit
from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.daemon.checkpoint_tokens import snapshot_of_tokens
from embedwatch.daemon.heart import Draining, Full, Heart
from embedwatch.daemon.polled_items import WHOLE, Item, Polled, Signature, items_of, number_of
from embedwatch.evaluator import Evaluator
from embedwatch.parcels import parcel_of_snapshot
from embedwatch.references import Reference
from embedwatch.sources import open_source
from embedwatch.sources.faiss import FaissSource
from embedwatch.sources.subject import TokenTable

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
POLL, AUDIT = STAGES = ("poll", "audit")
"""Where exceptions end: in looking what is there, and in reading it."""


@dataclass
class _Watched:
    polled: Polled
    due: float = 0.0
    looked: bool = False
    seen: dict[Path, tuple[Signature, float]] = field(default_factory=dict)
    """Path to how it was, and since when it has been so."""
    done: dict[Path, Signature] = field(default_factory=dict)
    spaces: dict[Path, tuple[Space, ...]] = field(default_factory=dict)
    """Path to the Spaces that show it now."""

    @property
    def is_run(self) -> bool:
        """Whether it is a row of checkpoints, each of which comes once and stays."""
        return self.polled.kind == "checkpoints"


class Polling:
    """Audits what is new, on a thread of its own, and hands the Snapshots to the heart, which judges them in order.

    What is being written is left alone until it has stayed the same for `settle` seconds. What cannot be read is
    counted and told at the heart, and tried again when it has changed. A checkpoint that was audited before a restart
    is known; a file is audited again, since nothing else would show its numbers. A file that stays as it is is
    confirmed: what was found holds now. The token table of a checkpoint is measured token by token too, and so judged
    beside the checkpoints before it.

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
        self._boundary = heart.boundary
        self._told: dict[tuple[str, str], str] = {}
        self.audited = 0
        """Checkpoints and files that were audited and taken."""
        self._rest_until = 0.0
        self._life = secrets.token_hex(8)
        self._stopped = threading.Event()
        self._evaluator: Evaluator | None = None

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """What could not be looked at or audited, by (stage, name of the source)."""
        return {key: count for key, count in self._boundary.errors.items() if key[0] in STAGES}

    def start(self) -> None:
        """Begin to look."""
        if self._evaluator is None:
            self._evaluator = Evaluator(self._boundary, idle=self.look, period=LOOK)

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
                with self._guard(POLL, watched.polled.name):
                    self._look_at(watched, now)

    @contextmanager
    def _guard(self, stage: str, name: str) -> Iterator[None]:
        """Let exceptions end at the boundary of the heart; what is wrong is told once, until it is something else."""
        with self._boundary.guard(stage, name, recovers=True):
            try:
                yield
            except Exception as error:
                self._tell(stage, name, _reason(error))
                raise
            self._told.pop((stage, name), None)

    def _tell(self, stage: str, name: str, reason: str) -> None:
        if self._told.get((stage, name)) == reason:
            return
        self._told[stage, name] = reason
        self._heart.tell(stage, name, reason)
        if (stage, name) in self._boundary.errors:  # the first is logged by the boundary
            log.error("embedwatch: %s %r failed again", stage, name, extra={"reason": reason})

    def _look_at(self, watched: _Watched, now: float) -> None:
        items = list(items_of(watched.polled))
        there = {item.path for item in items}
        watched.seen = {path: how for path, how in watched.seen.items() if path in there}
        watched.done = {path: how for path, how in watched.done.items() if path in there}
        watched.spaces = {path: spaces for path, spaces in watched.spaces.items() if path in there}
        if not watched.looked and watched.is_run:
            watched.done.update({item.path: item.signature for item in items[:-BACKLOG]})
        watched.looked = True
        for item in items:
            if watched.done.get(item.path) == item.signature:
                if not watched.is_run:
                    self._heart.confirm(watched.spaces.get(item.path, ()))
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

    def _audit(self, watched: _Watched, item: Item) -> None:
        polled = watched.polled
        sender, number = f"polling {polled.name}", number_of(item, life="" if watched.is_run else self._life)
        if self._heart.knows(sender, number):
            return
        began = self._ticks()
        with self._guard(AUDIT, polled.name):
            try:
                found = self._measured(polled, item)
                if polled.signature_of(item.path) != item.signature:
                    raise InputError(
                        f"{item.path.name} must stay as it is while it is read, it changed; it is read again"
                    )
                watched.spaces[item.path] = self._hand_over(polled, item, found, sender=sender, number=number)
                self.audited += 1
            except (Full, Draining):
                watched.done.pop(item.path)  # the next time
            except FileNotFoundError:
                log.info("embedwatch: %s went away before it was read", item.path.name)
        self._rest_until = self._ticks() + (self._ticks() - began) * (1 / SHARE - 1)

    def _measured(self, polled: Polled, item: Item) -> list[Snapshot]:
        """Return a Snapshot of each of its places, and of its tokens where it is a checkpoint that has some."""
        source = open_source(item.path)
        known = self._heart.reference_of

        def reference_of(space: Space) -> Reference | None:
            return None if known is None else known(_space(space, polled.name, item))

        asked = asdict(polled.questions) if isinstance(source, TokenTable) else {}
        if isinstance(source, FaissSource):
            asked = {"queries": polled.index.queries, "present": polled.index.present}
        judged = audit(source, only=self._only, skip=self._skip, reference_of=reference_of, **asked).spaces
        found = [each.snapshot for each in judged]
        if item.step is not None and isinstance(source, TokenTable):
            tokens = snapshot_of_tokens(source, self._boundary, only=self._only, skip=self._skip)
            found += [] if tokens is None else [tokens]
        return found

    def _hand_over(
        self, polled: Polled, item: Item, found: Sequence[Snapshot], *, sender: str, number: int
    ) -> tuple[Space, ...]:
        """Give the heart the Snapshots, and return their Spaces; that of the first, given last, stands for all."""
        labelled = [_labelled(measured, polled.name, item) for measured in found]
        for place, snapshot in reversed(list(enumerate(labelled))):
            if place == 0 or not self._is_last(snapshot):
                self._heart.accept(parcel_of_snapshot(snapshot, sender=sender, number=number + place))
        return tuple(snapshot.space for snapshot in labelled)

    def _is_last(self, snapshot: Snapshot) -> bool:
        """Return whether the Space shows this very content already."""
        known = self._heart.space(snapshot.space)
        provenance = {} if known is None else known.get("snapshot", {}).get("provenance", {})
        fingerprint, step = snapshot.provenance.fingerprint, snapshot.provenance.step
        return bool(fingerprint) and (provenance.get("fingerprint"), provenance.get("step")) == (fingerprint, step)


def _reason(error: Exception) -> str:
    """Return what people may read: the text of an exception that is not ours may quote data."""
    return str(error) if isinstance(error, EmbedwatchError | OSError) else type(error).__name__


def _labelled(snapshot: Snapshot, name: str, item: Item) -> Snapshot:
    provenance = replace(snapshot.provenance, step=item.step)
    return replace(snapshot, space=_space(snapshot.space, name, item), provenance=provenance)


def _space(space: Space, name: str, item: Item) -> Space:
    space = replace(space, model=name)
    return space if item.segment == WHOLE else replace(space, segment=item.segment)
