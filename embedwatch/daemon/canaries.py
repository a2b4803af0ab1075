"""Canaries: fixed texts that the daemon embeds again on a schedule, and judges beside what they were."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from embedwatch.align.aligner import Aligner
from embedwatch.align.probing import probe_pair
from embedwatch.canary import Canary, Provider
from embedwatch.canary.inputs import Embedder, model_embedder
from embedwatch.core.errors import EmbedwatchError, UsageError
from embedwatch.core.snapshot import Space
from embedwatch.daemon.heart import Draining, Full, Heart
from embedwatch.evaluator import Evaluator
from embedwatch.parcels import parcel_of_snapshot

__all__ = ["Canaries", "CanarySource"]

log = logging.getLogger(__name__)

LOOK = 0.5
"""Seconds between two looks at the schedule."""
CONFIRM = 60.0
"""Seconds after which a check that stands is confirmed."""
SHARE = 0.5
"""Embedding takes at most this share of the time: it rests for as long as it worked."""
STAGE = "canary"
"""Where exceptions end."""
NUMBER_BITS = 32
"""Of the number of a life, before the count of its deliveries."""


@dataclass(frozen=True)
class CanarySource:
    """A canary that is checked on a schedule.

    Args:
        path: its file; read again each time.
        name: label `model` of what is found.
        every: seconds between two checks.
        model: directory of the model that embeds, loaded again each time.
        url: address of the provider that embeds.
        url_model: name that the provider has for its model; that of the canary by default.
        key_env: environment variable that holds the provider's key.
        aligner: folder of a map, read again each time: what embeds is another model, whose mapped vectors are watched.
    """

    path: Path
    name: str
    every: float = 3600.0
    model: Path | None = None
    url: str | None = None
    url_model: str | None = None
    key_env: str | None = None
    aligner: Path | None = None

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise UsageError(f"`every` must be above 0 seconds, got {self.every!r}; 3600 is usual")
        if (self.model is None) == (self.url is None):
            raise UsageError("a canary must have `model` or `url`, got both or none; say what embeds its texts")
        if self.url is not None:
            self.embedder("model")  # an address that is none is told at the start

    def embedder(self, recorded: str) -> Embedder:
        """Return what embeds now, for a canary that was recorded from a model of this name."""
        if self.url is not None:
            name = self.url_model or recorded
            return Embedder(Provider(self.url, model=name, key_env=self.key_env), name)
        return model_embedder(os.fspath(self.model or ""))


class Canaries:
    """Embeds texts of canaries again, on a thread of its own, and hands the Snapshots to the heart, which judges.

    A check stands until its next time, and is confirmed until then. What cannot be embedded (no file, no answer, no
    model) is counted and told at the heart, and tried again when its time has come; what was found before grows old.

    Args:
        heart: takes the Snapshots.
        sources: what is checked.
        ticks: seconds of a clock that never jumps.
    """

    def __init__(
        self, heart: Heart, sources: Sequence[CanarySource], *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._heart, self._ticks = heart, ticks
        self._due = dict.fromkeys(range(len(sources)), 0.0)
        self._sources = list(sources)
        self._boundary = heart.boundary
        self._told: dict[str, str] = {}
        self._standing: dict[int, Space] = {}
        """Of the canaries whose last check was made: where it is shown."""
        self._confirmed: dict[int, float] = {}
        self._rest_until = 0.0
        self._life = secrets.randbits(NUMBER_BITS) << 20
        self._stopped = threading.Event()
        self._evaluator: Evaluator | None = None
        self.checked = 0
        """Checks that were made and taken."""

    def start(self) -> None:
        """Begin to look."""
        if self._evaluator is None:
            self._evaluator = Evaluator(self._boundary, idle=self.look, period=LOOK)

    def close(self) -> None:
        """End after the check that is going on. Calling it again does nothing."""
        self._stopped.set()
        if self._evaluator is not None:
            self._evaluator.close()

    def look(self) -> None:
        """Check what is due."""
        for place, source in enumerate(self._sources):
            now = self._ticks()
            if now < self._due[place]:
                self._confirm(place, now)
            if now < self._due[place] or now < self._rest_until or self._stopped.is_set():
                continue
            self._due[place] = now + source.every
            self._standing.pop(place, None)
            with self._boundary.guard(STAGE, source.name, recovers=True):
                try:
                    self._standing[place] = self._check(source)
                    self._confirmed[place] = now
                except (Full, Draining):
                    self._due[place] = now  # as soon as there is room
                except Exception as error:
                    self._tell(source.name, error)
                    raise
                else:
                    self._told.pop(source.name, None)
            self._rest_until = self._ticks() + (self._ticks() - now) * (1 / SHARE - 1)

    def _confirm(self, place: int, now: float) -> None:
        """Say that a check stands until its next time, which may be longer than numbers of a window count as new."""
        if place in self._standing and now - self._confirmed[place] >= CONFIRM:
            self._confirmed[place] = now
            self._heart.confirm([self._standing[place]])

    def _tell(self, name: str, error: Exception) -> None:
        """Say what is wrong, once, until it is something else."""
        reason = str(error) if isinstance(error, EmbedwatchError | OSError) else type(error).__name__
        if self._told.get(name) == reason:
            return
        self._told[name] = reason
        self._heart.tell(STAGE, name, reason)
        if (STAGE, name) in self._boundary.errors:  # the first is logged by the boundary
            log.error("embedwatch: %s %r failed again", STAGE, name, extra={"reason": reason})

    def _check(self, source: CanarySource) -> Space:
        """Embed again, hand over what was found, and return where it is shown."""
        canary = Canary.load(source.path)
        embedder = source.embedder(canary.model)
        known = {"model": embedder.label, "fingerprint": embedder.fingerprint}
        if source.aligner is None:
            found = canary.check(embedder.embed, **known, on_error="raise").snapshot
        else:
            aligner = Aligner.load(source.aligner)
            found = probe_pair(canary, embedder.embed, aligner=aligner, **known, on_error="raise")
        snapshot = replace(found, space=replace(found.space, model=source.name))
        self._life += 1
        self._heart.accept(parcel_of_snapshot(snapshot, sender=f"canary {source.name}", number=self._life))
        self.checked += 1
        return snapshot.space
