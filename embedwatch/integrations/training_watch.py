"""What callbacks of trainers share: a Monitor from the start of a training to its end."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.interventions import check_max_norm, shrink_rows, token_table
from embedwatch.monitor import Monitor, watch
from embedwatch.monitor_options import check_options
from embedwatch.rounds import Scalar
from embedwatch.selection import Selection

__all__ = ["Scalar", "TrainingWatch"]

GIVEN = ("model", "step")
"""Options of a Monitor that a callback knows better."""


class TrainingWatch:
    """Follows a training with a Monitor: from `begin` over steps to `end`, any number of times.

    A step is held until `tell`, so that what becomes known after it goes with it: its loss, a validation, a checkpoint.
    Whoever holds one must tell before the next forward pass. An exception of ours is counted and logged once, and
    never reaches the training; only options that do not fit are refused, before the first step.

    Args:
        renormalize: the length that rows of the embedding table may have after each step; `None` leaves them alone.
        options: of `embedwatch.watch`.

    Raises:
        UsageError: if there is no such option, one fits no model, or `renormalize` is no length.
    """

    def __init__(self, *, renormalize: float | None = None, options: Mapping[str, Any]) -> None:
        _check(options)
        if renormalize is not None:
            check_max_norm(renormalize)
        self.monitor: Monitor | None = None
        self._boundary = Boundary(on_error=options.get("on_error", "count"))
        self._options, self._max_norm = options, renormalize
        self._reset()

    def _reset(self) -> None:
        self._held: tuple[int, dict[str, Scalar]] | None = None
        self._later: dict[str, Scalar] = {}
        self._saved = False
        self._renormalized: Tensor | None = None

    def guard(self, event: str) -> AbstractContextManager[None]:
        """Let no exception of ours out of a block: the Monitor counts it among its own."""
        boundary = self._boundary if self.monitor is None else self.monitor.boundary
        return boundary.guard("callback", event)

    @property
    def watching(self) -> bool:
        """Whether a training is followed now."""
        return self.monitor is not None and not self.monitor.detached

    @property
    def renormalized(self) -> int | None:
        """How many rows were scaled so far, each time counted; `None` where nobody asked for that. Waits for them."""
        return None if self._renormalized is None else int(self._renormalized)

    def begin(self, model: nn.Module, *, step: int, silent: bool = False, **defaults: Any) -> None:
        """Watch a model from now on; options that were given go before these defaults, and silence before both.

        Raises:
            UsageError: if an option does not fit the model.
        """
        self.end()
        self._reset()
        options = {**defaults, **self._options, **({"sinks": ()} if silent else {})}
        refused: UsageError | None = None
        with self.guard("begin"):
            try:
                self.monitor = watch(model, step=step, **options)
                if self._max_norm is not None:
                    token_table(model)  # refused now, not after the first step
            except UsageError as error:
                refused = error
        if refused is not None:
            raise refused

    def hold(self, step: int, **scalars: Scalar) -> None:
        """Take note that a step is over, and renormalise where that is asked for."""
        self.tell()
        self._held = (step, {**self._later, **scalars})
        self._later = {}
        if self._max_norm is not None and self.monitor is not None:
            with self.guard("renormalize"):
                _, weight = token_table(self.monitor.model)
                number = shrink_rows(weight, self._max_norm)
                self._renormalized = number if self._renormalized is None else self._renormalized.to(number) + number

    def note(self, **scalars: Scalar) -> None:
        """Add what is known of the step that is held; where none is, it goes with the next."""
        (self._later if self._held is None else self._held[1]).update(scalars)

    def saved(self) -> None:
        """Take note of a checkpoint: the table is examined in full, after the step that is held."""
        self._saved = True
        if self._held is None:
            self.tell()

    def tell(self) -> None:
        """Tell the Monitor of the step that is held."""
        held, self._held = self._held, None
        saved, self._saved = self._saved, False
        if self.monitor is not None:
            if held is not None:
                self.monitor.step(held[0], **held[1])
            if saved:
                self.monitor.examine()

    def end(self) -> None:
        """Tell what is held, judge what is open and let the model go. Calling it again does nothing."""
        self._saved = False  # letting go examines the table anyway
        self.tell()
        if self.monitor is not None:
            self.monitor.detach()


def _check(options: Mapping[str, Any]) -> None:
    """Refuse now what would be refused when the training starts, whatever the model."""
    known = [name for name in inspect.signature(Monitor).parameters if name not in GIVEN]
    for name in options:
        if name not in known:
            words = f"`{name}` must be an option of `embedwatch.watch`, got another;", did_you_mean(name, known)
            raise UsageError(" ".join(filter(None, (*words, f"there are {', '.join(known)}"))))
    checked = [name for name in inspect.signature(check_options).parameters if name not in GIVEN]
    defaults = {name: inspect.signature(Monitor).parameters[name].default for name in checked}
    check_options(step=0, **{name: options.get(name, default) for name, default in defaults.items()})
    Selection.live("vectors", only=_texts(options.get("only", ())), skip=_texts(options.get("skip", ())))
    for text in _texts(options.get("sinks", ())):
        get(Sink, text.partition(":")[0])


def _texts(given: Any) -> list[str]:
    """Return the names among what is given; one text counts as one."""
    if isinstance(given, str):
        return [given]
    return [each for each in given if isinstance(each, str)] if isinstance(given, Collection) else []
