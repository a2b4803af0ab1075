"""The pulse of a Monitor: whether this step is looked at. Hooks are armed from outside, once per step."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from embedwatch.observe.arrival import Arriving
    from embedwatch.observe.masks import Mask

__all__ = ["Context", "Pulse", "Ticker"]

Ticker = Literal["forward", "optimizer", "manual"]
"""Who says that a step is over. The later in this list overrules the earlier."""
_RANK: dict[Ticker, int] = {"forward": 0, "optimizer": 1, "manual": 2}
SERVING_PASSES = 20
"""After so many forward passes in a row without gradients a model whose optimizer is gone serves."""
RANK_BITS = 28
"""The number of a forward pass holds the rank above so many bits: 268 million passes on each of 2,048 ranks."""
NOTHING = -1
"""What torch says where no backward pass runs."""


class Context(threading.local):
    """What the hooks of one forward pass share; each thread has its own."""

    def __init__(self) -> None:
        self.looking = False
        self.attending = False
        """Whether attention is looked at too."""
        self.inside = False
        """Whether the watched model itself runs on this thread."""
        self.leader: int | None = None
        """Outside of it: the first hook that was called. It stands for a model whose parts are called by others."""
        self.forward = 0
        self.began = 0.0
        self.masks: dict[str, Mask] = {}
        self.calls: dict[int, int] = {}


class Pulse:
    """Counts steps, and arms the hooks at one step in `every`, or at the next one where steps come in strides.

    A step is over when `Monitor.step` says so; without it, when an optimizer of the model has stepped; without an
    optimizer, when the next forward pass begins. Who overrules the others is settled by the first that speaks. Forward
    passes without gradients, after a step had one with gradients, are validations, and not looked at.

    A validation may be of any length, so passes alone never say that a training has ended. Where its optimizer exists
    no longer, no step can follow: then a model that goes on without gradients serves, and each pass is a step again,
    counted on. With the next gradients, or the next step that somebody speaks of, the training goes on at its own step.

    Args:
        every: one step in so many is looked at; the first always.
        step: steps that were done before.
        ticked: called after each step.
        rank: of those that train together: rows of all ranks have numbers of their own.
    """

    def __init__(self, *, every: int, step: int = 0, ticked: Callable[[], None] = lambda: None, rank: int = 0) -> None:
        self.every = every
        self.step = step
        self.ticker: Ticker = "forward"
        self.context = Context()
        self.forwards = 0
        self.busy = 0.0
        """Seconds that finished forward passes took."""
        self.grad = False
        """Whether the last forward pass recorded gradients, as training does."""
        self.width: int | None = None
        """Last dimension of what the model put out, where it was seen: V, where it predicts tokens."""
        self.scalars: dict[str, Tensor | Arriving] = {}
        """What was seen of this step's outputs, by the name of a scalar; whoever records the step takes it."""
        self.seconds = 0.0
        """Processor time that seeing it took."""
        self.paused = False
        """Whether nothing is looked at for now, since it costs too much."""
        self.rested = False
        """Whether that was so at any time since the last window was closed."""
        self.looks = 0
        """Forward passes that were looked at."""
        self.attention_every: int | None = None
        """Of the passes that are looked at, attention is in those so many steps apart; `None` for none."""
        self._attended: int | None = None
        self.off = False
        """For good: after detaching, and in processes that were forked off."""
        self.first = step
        self._due = step
        self._learned: int | None = None  # the last step with a forward pass that recorded gradients
        self._ticked = ticked
        self.ended: Callable[[], bool] = lambda: False
        """Whether no step of a training can follow, as far as is known."""
        self._ungraded = 0  # forward passes in a row without gradients
        self._trained: tuple[Ticker, int] | None = None  # who counted the steps of a training before it, and how many
        self._numbers = itertools.count(rank << RANK_BITS)
        self._number = rank << RANK_BITS  # of the first forward pass
        self._lock = threading.RLock()

    @property
    def armed(self) -> bool:
        """Whether the current step is looked at."""
        paused = self.paused and not self.training
        return not (self.off or paused) and self.step >= self._due

    @property
    def training(self) -> bool:
        """Whether steps are steps of a training."""
        return self.ticker != "forward"

    @property
    def _validates(self) -> bool:
        """Whether a pass without gradients is a validation: this step or the last one had a pass with gradients."""
        return self.training and self._learned is not None and self.step - self._learned <= 1

    def begin(self, *, grad: bool, leader: int | None = None) -> None:
        """Take note that a forward pass begins: of the model, or of a part of it that was called by itself.

        Args:
            grad: whether gradients are recorded.
            leader: the hook of the part.
        """
        context = self.context
        context.looking = False
        if self.off:
            return
        context.inside, context.leader = leader is None, leader
        self._ungraded = 0 if grad else self._ungraded + 1
        if grad:
            self._train_on()
        elif self.training and self._ungraded >= SERVING_PASSES and self.ended():
            self._serve()
        if self.ticker == "forward" and self.forwards:
            self.tick("forward")
        context.masks.clear()
        context.calls.clear()
        context.forward = next(self._numbers)
        self.grad = grad
        context.began = time.perf_counter()
        if grad:
            self._learned = self.step
        context.looking = self.armed and (grad or not self._validates)
        context.attending = context.looking and self._attention_is_due()
        self.looks += context.looking
        self.forwards = context.forward + 1 - self._number

    def rest(self, *, paused: bool) -> None:
        """Look at nothing for now, or go on to look."""
        self.paused = paused
        self.rested |= paused

    def _attention_is_due(self) -> bool:
        """Return whether attention is looked at in this step, and take note that it is."""
        if self.attention_every is None:
            return False
        due = self._attended is None or not 0 < self.step - self._attended < self.attention_every
        self._attended = self.step if due else self._attended
        return due

    @property
    def attends(self) -> bool:
        """Whether attention is looked at in this forward pass, on this thread."""
        context = self.context
        return context.looking and context.attending

    def _serve(self) -> None:
        """Count forward passes from now on: the training is over."""
        with self._lock:
            self._trained = self.ticker, self.step
            self.ticker, self._learned, self._due = "forward", None, self.step

    def _train_on(self) -> None:
        """Count the steps of a training where it was, if there was one before the model served."""
        with self._lock:
            if self._trained is not None:
                self.ticker, self.step = self._trained
                self._trained, self._due = None, min(self._due, self.step)

    def end(self) -> None:
        """Take note that the forward pass of the model is over: what is called after it by itself stands for itself."""
        context = self.context
        if context.began:
            self.busy += time.perf_counter() - context.began
        context.began, context.leader = 0.0, None
        context.inside = context.looking = False
        context.masks.clear()

    def enter(self, key: int, *, grad: bool) -> bool:
        """Return whether a hook that is called looks; outside the model's forward, the first one begins a pass."""
        context = self.context
        if not context.inside and context.leader in (None, key) and not self.recomputing():
            self.begin(grad=grad, leader=key)
        return context.looking

    def tick(self, ticker: Ticker, step: int | None = None) -> bool:
        """End a step; return whether it counts. `step` is the number of steps that are done now."""
        with self._lock:
            if ticker != "forward" and not self.off:
                self._train_on()
            if self.off or _RANK[ticker] < _RANK[self.ticker]:
                return False
            counted, before, armed = ticker == self.ticker, self.step, self.armed
            if step is not None:
                self.step = step
            elif counted:
                self.step += 1
            else:  # whom it overrules has counted this very step, or forward passes within it
                self.step = max(self.step, self.first + 1) if self.training else self.first + 1
            self.ticker = ticker
            if armed:
                self._due = before + self.every - (before - self.first) % self.every
            self._due = min(self._due, self.step + self.every)  # steps that are counted anew do not wait for the old
        self._ticked()
        return True

    def recomputing(self) -> bool:
        """Return whether this forward pass is a part that gradient checkpointing repeats during the backward pass."""
        return bool(torch._C._current_graph_task_id() != NOTHING)
