"""Observers: hooks that hand on what flows at one place of a live model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from embedwatch.core.boundary import Boundary
from embedwatch.observe.arrival import arrival, arriving
from embedwatch.observe.looks import Looks
from embedwatch.observe.masks import Mask, Padding, real_rows
from embedwatch.observe.outputs import named_tensor, vectors_of
from embedwatch.observe.places import Place
from embedwatch.observe.predictions import predictions
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.sampling import Sample, sample_rows
from embedwatch.observe.seam import Hook

__all__ = ["EMPTY", "Added", "Begin", "End", "Observer", "Seen", "TokensSeen", "why_unfit"]

MOST_CALLS = 64
"""A module that is called more often within one forward pass is seen at its first calls only."""
MOST_LOOKS = 4
"""So many times the rows of one look wait to be collected; what comes beyond is dropped and counted."""
BYTES = 4
EMPTY = "what came was empty, a batch of nothing"

TokensSeen = Callable[[Tensor, "Tensor | None"], None]


@dataclass(frozen=True)
class Seen:
    """A look at one place.

    Args:
        call: which call of the module within the forward pass.
        sample: the rows.
        event: when they are there, on a device that works by itself.
    """

    call: int
    sample: Sample
    event: Any = None


class Observer(Looks, Hook):
    """Copies a sample of the rows at one place, at armed steps.

    Args:
        place: where.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        rows: the most rows of one look; one look at each call of the module in a step.
        seed: of the sample.
        scopes: names of the modules around it that are told about padding, the innermost first.
        padding: what stands for padding, where the model is told no mask.
        inputs: names of the modules around it that are given what its rows are made of, the innermost first.
        tokens: told the tokens that an embedding looked up, and which of them are real.
        part: name of the part of the output that is seen.
    """

    def __init__(
        self,
        place: Place,
        pulse: Pulse,
        boundary: Boundary,
        *,
        rows: int,
        seed: int = 0,
        scopes: Sequence[str] = (),
        padding: Padding | None = None,
        inputs: Sequence[str] = (),
        tokens: TokensSeen | None = None,
        part: str = "",
    ) -> None:
        super().__init__(boundary, "observer", place.name)
        self.place = place
        self.before = place.side == "input"
        self.rows = rows
        self._pulse = pulse
        self._seed, self._scopes, self._padding = seed, tuple(scopes), padding
        self._inputs, self._tokens, self._part = tuple(inputs), tokens, part
        self._pending: list[Seen] = []
        self._waiting = 0
        self._looked: dict[int, int] = {}  # call to the step that was looked at
        self._step, self._turn, self._passes, self._usual = -1, -1, 0, 1
        self._chosen = True
        self._lock = threading.Lock()

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the vectors, and the tokens where it is an embedding."""
        if self._part:
            return named_tensor(output, self._part), None
        if self.place.side == "input":
            given = args or tuple(kwargs.values())
            entered = kwargs["hidden_states"] if "hidden_states" in kwargs else given[0] if given else None
            return vectors_of(entered), None
        first = args[0] if args else next(iter(kwargs.values()), None)
        return vectors_of(output), first if self._tokens is not None and isinstance(first, Tensor) else None

    def wants(self, *, grad: bool) -> bool:
        """Return whether this forward pass is looked at."""
        return self._pulse.enter(self.key, grad=grad) and not self.off

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Copy a sample of the rows."""
        if self._pulse.recomputing():
            return
        began = time.thread_time()
        with torch.inference_mode(mode=False), torch.no_grad():
            self._look(first, second)
            self._boundary.recover(self._stage, self._name)
        self.seconds += time.thread_time() - began

    def _look(self, output: Tensor | None, tokens: Tensor | None) -> None:
        self.unfit = why_unfit(output)
        if output is None or self.unfit:
            return
        self.unfit = "" if output.numel() else EMPTY
        context, step = self._pulse.context, self._pulse.step
        call = context.calls.get(self.key, 0)
        context.calls[self.key] = call + 1
        valid = real_rows(context.masks, self._scopes, output.shape[:-1], self._padding)
        if self._tokens is not None and tokens is not None:
            self._tokens(tokens, valid)
        with self._lock:
            self._chosen = self._is_its_turn(step) if call == 0 else self._chosen
            if call >= MOST_CALLS or self._looked.get(call) == step or output.numel() == 0 or not self._chosen:
                return  # another pass of this step is looked at: several make a batch, or a triple of texts
            self.calls = max(self.calls, call + 1)
            if self._waiting > MOST_LOOKS * self.rows * self.calls:
                self.dropped += self.rows
                return
        sample = sample_rows(
            output.detach(),
            self.rows,
            forward=context.forward,
            seed=self._seed,
            valid=valid,
            inputs=self._made_of(output, tokens),
        )
        event = arrival(output.device)
        with self._lock:
            if self._pulse.training:
                self._looked[call] = step
            self._pending.append(Seen(call, sample, event))
            self._waiting += len(sample.rows)
            self.looks += 1

    def _is_its_turn(self, step: int) -> bool:
        """Return whether this pass may be looked at: one in a step of training, each time another of those it has.

        A step may have many: parts of an accumulated batch, or queries, then texts that fit, then texts that do not.
        """
        if not self._pulse.training:
            return True
        if step != self._step:
            self._usual, self._passes, self._step = max(self._passes, 1), 0, step
            self._turn += 1
        self._passes += 1
        return self._passes > self._turn % self._usual

    def _made_of(self, output: Tensor, tokens: Tensor | None) -> Tensor | None:
        """Return the identity of what each row was made of; `None` where it is not known. Shape: (N,) int64."""
        shape, masks = output.shape[:-1], self._pulse.context.masks
        found = tokens.reshape(-1).long() if tokens is not None and tokens.shape == shape else None
        for name in () if found is not None else self._inputs:
            mask = masks.get(name)
            found = None if mask is None else mask.inputs(shape, self._padding)
            if found is not None:
                break
        return None if found is None else found.to(output.device, non_blocking=True)

    @property
    def waiting(self) -> int:
        """Rows that were not collected yet."""
        return self._waiting

    def most_bytes(self, dimension: int) -> int:
        """Return the most bytes that wait to be collected."""
        return (MOST_LOOKS + 1) * self.rows * self.calls * dimension * BYTES

    def collect(self) -> list[Seen]:
        """Hand over what was seen since the last time."""
        with self._lock:
            pending, self._pending, self._waiting = self._pending, [], 0
        return pending


def why_unfit(output: Tensor | None) -> str:
    """Return why an output cannot be looked at; empty where it can."""
    if output is None:
        return "its output holds no vectors"
    if output.is_nested or output.layout != torch.strided:
        return "its output is nested or sparse"
    if hasattr(output, "to_local"):
        return "its output is spread over devices"
    if output.device.type == "meta":
        return "it has no data"
    if isinstance(output, FakeTensor):
        return "it has no data"
    if torch._C._functorch.is_functorch_wrapped_tensor(output):
        return "it runs inside a function transform"
    if output.is_cuda and torch.cuda.is_current_stream_capturing():
        return "it runs inside a CUDA graph"
    return ""


class Added(Observer):
    """Sees what a module of positions adds to tokens: its output without its input, or the vectors it looks up."""

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the output, and the vectors that went in."""
        return vectors_of(output), vectors_of(args[0]) if args else None

    def _look(self, output: Tensor | None, entered: Tensor | None) -> None:
        if output is not None and entered is not None and entered.shape == output.shape:
            output = output.detach() - entered.detach()
        super()._look(output, None)


class Begin(Hook):
    """A pre-hook on the watched model: a forward pass begins."""

    before = True

    def __init__(self, pulse: Pulse, boundary: Boundary) -> None:
        super().__init__(boundary, "monitor", "forward")
        self._pulse = pulse

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return nothing."""
        return None, None

    def wants(self, *, grad: bool) -> bool:
        """Take note; nothing is to be seen."""
        if not self._pulse.recomputing():
            self._pulse.begin(grad=grad)
        return False


class End(Begin):
    """A hook on the watched model: a forward pass is over, also where it failed.

    Sees how wide its output is, and what is predicted in it where that is as wide as a vocabulary.

    Args:
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
        vocabulary: returns V, where tokens may be predicted.
        padding: what stands for padding, where the model is told no mask.
    """

    before = False

    def __init__(
        self,
        pulse: Pulse,
        boundary: Boundary,
        *,
        vocabulary: Callable[[], int | None] = lambda: None,
        padding: Padding | None = None,
    ) -> None:
        super().__init__(pulse, boundary)
        self._vocabulary, self._padding = vocabulary, padding
        self._mask: Mask | None = None

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the logits, or else the vectors; in compiled code nothing, which keeps the graph as it is."""
        if torch.compiler.is_compiling():
            return None, None
        logits = named_tensor(output, "logits")
        return vectors_of(output) if logits is None else logits, None

    def wants(self, *, grad: bool) -> bool:
        """Take note, and return whether this forward pass was looked at."""
        looking = self._pulse.context.looking
        self._mask = self._pulse.context.masks.get("") if looking else None
        if not self._pulse.recomputing():
            self._pulse.end()
        return looking

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Take note of the width, and in training of what is predicted."""
        pulse, mask = self._pulse, self._mask
        self._mask = None
        pulse.width = None if first is None else first.shape[-1]
        if first is None or first.shape[-1] != self._vocabulary() or not pulse.grad or why_unfit(first):
            return
        began, shape = time.thread_time(), first.shape[:-1]
        with torch.inference_mode(mode=False), torch.no_grad():
            valid = mask.valid(shape, self._padding) if mask is not None and mask.fits(shape) else None
            found = predictions(first, forward=pulse.context.forward, valid=valid)
            pulse.scalars = {name: arriving(value) for name, value in dict(found).items()}
        pulse.seconds += time.thread_time() - began
