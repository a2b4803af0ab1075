"""The optimizer's side: a training step of a watched model is over when an optimizer of its parameters has stepped."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["OptimizerWatch", "Settings"]

Settings = dict[str, Any]
"""A parameter group of an optimizer, without its parameters."""
Stepped = Callable[[Optimizer], None]


class _Wire:
    """One process-wide hook for all Monitors: there while anybody listens."""

    def __init__(self) -> None:
        self._listeners: dict[int, weakref.WeakMethod[Stepped]] = {}
        self._handle: Any = None
        self._lock = threading.Lock()

    def listen(self, listener: Stepped) -> int:
        """Call a listener, a method, after each step of any optimizer, while its object lives; return a number."""
        with self._lock:
            if self._handle is None:
                self._handle = register_optimizer_step_post_hook(self._stepped)
            number = max(self._listeners, default=0) + 1
            self._listeners[number] = weakref.WeakMethod(listener)
        return number

    def leave(self, number: int) -> None:
        """Stop calling a listener; with the last one the hook goes."""
        with self._lock:
            self._listeners.pop(number, None)
            if not self._listeners and self._handle is not None:
                self._handle.remove()
                self._handle = None

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        for number, reference in list(self._listeners.items()):
            listener = reference()
            if listener is None:
                self.leave(number)
            else:
                listener(optimizer)


_wire = _Wire()


class OptimizerWatch:
    """Notices the steps of one optimizer that holds parameters of a model, and how it treats one of them.

    Of several it is the one that holds the embedding table, where that steps as often as the others; else the first.

    Args:
        model: whose parameters.
        stepped: called after each step.
        table: returns what the weight of the embedding table is; `None` where there is none.
    """

    def __init__(
        self, model: nn.Module, stepped: Callable[[], None], *, table: Callable[[], object] = lambda: None
    ) -> None:
        self._model = weakref.ref(model)
        self._stepped, self._table = stepped, table
        self._steps = 0  # of the chosen one, since another that holds the table has stepped
        self._with: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # those that stepped since the chosen one did
        self._chosen: weakref.ref[Optimizer] | None = None
        self._other: weakref.ref[Optimizer] | None = None
        self._strangers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._number: int | None = _wire.listen(self._step)

    def close(self) -> None:
        """Stop listening. Calling it again does nothing."""
        if self._number is not None:
            _wire.leave(self._number)
            self._number = None

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer, once it has stepped."""
        return None if self._chosen is None else self._chosen()

    @property
    def gone(self) -> bool:
        """Whether there was one, and it exists no longer: nothing can step until another does."""
        return self._chosen is not None and self._chosen() is None

    @property
    def parameters(self) -> list[Tensor]:
        """What it holds, and those hold that stepped since its last step: all that this step moves."""
        chosen = self.optimizer
        others = [each for each in self._with if each is not chosen]
        groups = [group for each in (chosen, *others) if each is not None for group in each.param_groups]
        held = {id(parameter): parameter for group in groups for parameter in group["params"]}
        return list(held.values())

    def settings(self, parameter: object) -> Settings | None:
        """Return how the optimizer treats a parameter; `None` where it does not know it, or has not stepped."""
        return _settings(self.optimizer, parameter)

    @property
    def rate(self) -> float | Tensor | None:
        """The learning rate of the first group, as the optimizer keeps it; `None` where it has none."""
        rate = {} if self.optimizer is None else self.optimizer.param_groups[0]
        given = rate.get("lr")
        return given if isinstance(given, (int, float, Tensor)) and not isinstance(given, bool) else None

    def _step(self, optimizer: Optimizer) -> None:
        if optimizer in self._strangers:
            return
        if optimizer is not self.optimizer and not self._is_ours(optimizer):
            self._strangers.add(optimizer)
            return
        if optimizer is not self.optimizer and self._takes_over(optimizer):
            self._chosen = weakref.ref(optimizer)
        if optimizer is self.optimizer:
            self._other, self._steps = None, self._steps + 1
            self._stepped()
            self._with.clear()
        else:
            self._with.add(optimizer)
            self._give_way(optimizer)

    def _give_way(self, optimizer: Optimizer) -> None:
        """Let one count from its next step on that holds the table, where the chosen one does not; this was counted."""
        table = self._table()
        if table is None or _settings(optimizer, table) is None or self.settings(table) is not None:
            return
        if self._steps == 1:
            self._chosen, self._other = weakref.ref(optimizer), None
            self._with.clear()
        self._steps = 0

    def _takes_over(self, optimizer: Optimizer) -> bool:
        """Return whether it is the first, or has stepped twice since the one before it did."""
        again = self._other is not None and self._other() is optimizer
        self._other = weakref.ref(optimizer)
        return self.optimizer is None or again

    def _is_ours(self, optimizer: Optimizer) -> bool:
        model = self._model()
        if model is None:
            return False
        ours = {id(parameter) for parameter in model.parameters()}
        return any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"])


def _settings(optimizer: Optimizer | None, parameter: object) -> Settings | None:
    """Return the group of an optimizer that a parameter is in; `None` where it is in none."""
    groups: Iterable[Settings] = () if optimizer is None else optimizer.param_groups
    for group in groups:
        if any(held is parameter for held in group["params"]):
            return {name: value for name, value in group.items() if name != "params"}
    return None
