"""The pulse of a Monitor: whether this step is looked at. Hooks are armed from outside, once per step."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from embedwatch.observe.scopes import Mask

__all__ = ["Context", "Pulse", "Ticker"]

Ticker = Literal["forward", "optimizer", "manual"]
"""Who says that a step is over. The later in this list overrules the earlier."""
_RANK: dict[Ticker, int] = {"forward": 0, "optimizer": 1, "manual": 2}
NOTHING = -1
"""What torch says where no backward pass runs."""


class Context(threading.local):
    """What the hooks of one forward pass share; each thread has its own."""

    def __init__(self) -> None:
        self.looking = False
        self.forward = 0
        self.began = 0.0
        self.masks: dict[str, Mask] = {}
        self.calls: dict[int, int] = {}


class Pulse:
    """Counts steps, and arms the hooks at one step in `every`.

    A step is over when `Monitor.step` says so; without it, when an optimizer of the model has stepped; without an
    optimizer, when the next forward pass begins. Who overrules the others is settled by the first that speaks. While
    steps are counted by training, forward passes without gradients are validations, and not looked at.

    Args:
        every: one step in so many is looked at; the first always.
        step: steps that were done before.
        ticked: called after each step.
    """

    def __init__(self, *, every: int, step: int = 0, ticked: Callable[[], None] = lambda: None) -> None:
        self.every = every
        self.step = step
        self.ticker: Ticker = "forward"
        self.context = Context()
        self.rooted = False
        """Whether the watched model itself was called; else its first part that is called stands for it."""
        self.leader: int | None = None
        self.forwards = 0
        self.last_forward: float | None = None
        self.busy = 0.0
        """Seconds that finished forward passes took."""
        self.off = False
        """For good: after detaching, and in processes that were forked off."""
        self.first = step
        self._ticked = ticked
        self._numbers = itertools.count()
        self._lock = threading.RLock()

    @property
    def armed(self) -> bool:
        """Whether the current step is looked at."""
        return not self.off and (self.step - self.first) % self.every == 0

    @property
    def training(self) -> bool:
        """Whether steps are steps of a training."""
        return self.ticker != "forward"

    def begin(self, *, root: bool = False) -> None:
        """Take note that a forward pass begins."""
        if self.off:
            return
        if root:
            self.rooted, self.leader = True, None
        if self.ticker == "forward" and self.forwards:
            self.tick("forward")
        context = self.context
        context.masks.clear()
        context.calls.clear()
        context.forward = next(self._numbers)
        context.began = time.perf_counter()
        context.looking = self.armed and (not self.training or torch.is_grad_enabled())
        self.forwards = context.forward + 1
        self.last_forward = context.began

    def end(self) -> None:
        """Take note that the forward pass is over."""
        if self.context.began:
            self.busy += time.perf_counter() - self.context.began
            self.context.began = 0.0

    def enter(self, key: int) -> None:
        """Let the first hook that is ever called stand for a model whose own forward is not called."""
        if not self.rooted and self.leader in (None, key):
            self.leader = key
            self.begin()

    def tick(self, ticker: Ticker, step: int | None = None) -> bool:
        """End a step; return whether it counts. `step` is the number of steps that are done now."""
        with self._lock:
            if self.off or _RANK[ticker] < _RANK[self.ticker]:
                return False
            counted = ticker == self.ticker
            if step is not None:
                self.step = step
            elif counted:
                self.step += 1
            else:  # whom it overrules has counted this very step, or forward passes within it
                self.step = max(self.step, self.first + 1) if self.training else self.first + 1
            self.ticker = ticker
        self._ticked()
        return True

    def recomputing(self) -> bool:
        """Return whether this forward pass is a part that gradient checkpointing repeats during the backward pass."""
        return bool(torch._C._current_graph_task_id() != NOTHING)
