"""A site at work: where attention of one module is seen, what is kept of it, and how it went."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from embedwatch.core.boundary import Boundary
from embedwatch.observe.arrival import arrival
from embedwatch.observe.attention.calls import AttentionCall
from embedwatch.observe.attention.rows import AttentionRows, Real, sample_attention
from embedwatch.observe.looks import Looks
from embedwatch.observe.masks import Padding, real_rows
from embedwatch.observe.observer import EMPTY, MOST_CALLS, why_unfit
from embedwatch.observe.places import Place
from embedwatch.observe.pulse import Pulse

__all__ = ["LOOK_BYTES", "MOST_WAITING", "AttentionSeen", "AttentionSite", "Share", "Unseen"]

LOOK_BYTES = 16 << 20
"""The rows of one look at a whole model take so many bytes at most: long sequences leave fewer queries."""
MOST_WAITING = LOOK_BYTES
"""So many bytes wait to be collected, after the step; what comes beyond is dropped and counted."""
ENTRY_BYTES = 5
"""A logit, and whether its key is visible."""
STAGE = "attention"

_keys = itertools.count(-1, -1)  # those of hooks, with whom sites share a count of calls, are not negative


class Unseen(Exception):
    """Why a call cannot be looked at."""


@dataclass(frozen=True)
class AttentionSeen:
    """A look at one site.

    Args:
        call: which call of the module within the forward pass.
        rows: the sampled rows.
        event: when they are there, on a device that works by itself.
        granted: bytes that were set aside for it.
    """

    call: int
    rows: AttentionRows
    event: Any = None
    granted: int = 0


@dataclass
class Share:
    """What all sites of a model share: how many queries, and how many bytes.

    Args:
        rows: the most queries of one look at a site.
        seed: of samples.
        placed: whether anything in the model holds positions.
        calls: of all sites in a forward pass.
        waiting: bytes that were granted and not given back.
    """

    rows: int
    seed: int = 0
    placed: bool = True
    calls: int = 0
    waiting: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def queries(self, size: int, *, turn: int) -> int:
        """Return how many queries of `size` bytes a site may look at; sites take turns where one is too many."""
        share = LOOK_BYTES // max(self.calls, 1)
        if size <= share:
            return min(self.rows, share // size)
        return 0 if turn % math.ceil(size / share) else 1

    def grant(self, size: int) -> bool:
        """Set bytes aside; return whether there were so many."""
        with self.lock:
            if self.waiting + size > MOST_WAITING:
                return False
            self.waiting += size
            return True

    def give_back(self, size: int) -> None:
        """Return bytes."""
        with self.lock:
            self.waiting -= size


class AttentionSite(Looks):
    """Samples the attention of one module, at the steps at which attention is looked at.

    Args:
        place: where.
        kind: through which seam it is seen.
        share: what all sites share.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        cross: whether keys are another sequence than queries.
        scopes: names of the modules around it that are told about padding, the innermost first.
        padding: what stands for padding, where the model is told no mask.
    """

    def __init__(
        self,
        place: Place,
        kind: str,
        share: Share,
        pulse: Pulse,
        boundary: Boundary,
        *,
        cross: bool = False,
        scopes: Sequence[str] = (),
        padding: Padding | None = None,
    ) -> None:
        self.place, self.kind, self.cross = place, kind, cross
        self.key = next(_keys)
        self.entered = False
        """Whether its module was called while attention was looked at, where a hook tells."""
        self._share, self._pulse, self._boundary = share, pulse, boundary
        self._scopes, self._padding = tuple(scopes), padding
        self._pending: list[AttentionSeen] = []
        self._looked: dict[int, int] = {}  # call to the step that was looked at
        self._turns = 0
        self._lock = threading.Lock()
        share.calls += 1

    @property
    def name(self) -> str:
        """Of its place."""
        return self.place.name

    @property
    def boundary(self) -> Boundary:
        """Where exceptions of ours end."""
        return self._boundary

    @property
    def off(self) -> bool:
        """Whether it failed so often in a row that it is not tried again."""
        return self._boundary.is_off(STAGE, self.name)

    @property
    def attends(self) -> bool:
        """Whether attention is looked at in this forward pass, on this thread."""
        return self._pulse.attends

    def attend(self, make: Callable[[], AttentionCall]) -> None:
        """Look at a call, if it is time; whatever goes wrong ends here."""
        if not self.attends or self._pulse.recomputing():
            return
        with self._boundary.guard(STAGE, self.name):
            if self.off:
                return
            began = time.thread_time()
            with _plain_numbers():
                try:
                    self._look(make())
                except Unseen as reason:
                    self.unfit = str(reason)
                self._boundary.recover(STAGE, self.name)
            self.seconds += time.thread_time() - began

    def _look(self, call: AttentionCall) -> None:
        batch, heads, queries, keys = call.shape
        self.unfit = why_unfit(call.witness) or ("" if batch * heads * queries * keys else EMPTY)
        if self.unfit:
            return
        context, step = self._pulse.context, self._pulse.step
        number = context.calls.get(self.key, 0)
        context.calls[self.key] = number + 1
        size = heads * keys * ENTRY_BYTES
        with self._lock:
            if number >= MOST_CALLS or self._looked.get(number) == step:
                return  # this step has been looked at: in another part of an accumulated batch
            if self._pulse.training:
                self._looked[number] = step
            self._share.calls += max(0, number + 1 - self.calls)
            self.calls = max(self.calls, number + 1)
            self._turns += 1
            self.looks += 1
        count = min(self._share.queries(size, turn=self._turns + self.key), batch * queries)
        if not count:
            return
        if not self._share.grant(count * size):
            self.dropped += count * heads
            return
        self._keep(number, call, count, count * size)

    def _keep(self, number: int, call: AttentionCall, count: int, granted: int) -> None:
        forward, share = self._pulse.context.forward, self._share
        try:
            real = self._real(call)
            rows = sample_attention(call, count, forward=forward, seed=share.seed, real=real, placed=share.placed)
            event = arrival(call.device)
        except BaseException:
            self._share.give_back(granted)
            raise
        with self._lock:
            self._pending.append(AttentionSeen(number, rows, event, granted))

    def _real(self, call: AttentionCall) -> Real:
        """Return what the modules around were told about padding."""
        batch, _, queries, keys = call.shape
        return Real(self._valid(batch, queries), None if call.cross else self._valid(batch, keys))

    def _valid(self, batch: int, length: int) -> torch.Tensor | None:
        return real_rows(self._pulse.context.masks, self._scopes, torch.Size((batch, length)), self._padding)

    @property
    def waiting(self) -> int:
        """Looks that were not collected yet."""
        return len(self._pending)

    def collect(self) -> list[AttentionSeen]:
        """Hand over what was seen since the last time."""
        with self._lock:
            pending, self._pending = self._pending, []
        self._share.give_back(sum(seen.granted for seen in pending))
        return pending


@contextmanager
def _plain_numbers() -> Iterator[None]:
    """Leave inference mode and autocast, and record no gradients."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    first, second = ([*kinds, "cpu", "cpu"])[:2]
    with (
        torch.inference_mode(mode=False),
        torch.no_grad(),
        torch.autocast(first, enabled=False),
        torch.autocast(second, enabled=False),
    ):
        yield
