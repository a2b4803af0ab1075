"""Scopes: modules that are told which positions are padding, and the places below them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.seam import Hook

__all__ = ["Mask", "Scope", "find_scopes"]

PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
"""Arguments that are true where a key is padding (torch's own layers). They come first: there `mask` is another one."""
REAL_MASKS = ("attention_mask", "mask", "padding_mask")
"""Arguments that are true, or 1, where a token is real."""
BATCH_AND_POSITION = 2
IDS = ("input_ids", "ids", "source", "src")
"""Arguments that hold tokens."""


@dataclass(frozen=True)
class Mask:
    """What a scope was told about its positions.

    Args:
        real: (B, T), or longer where it covers what is in a cache; nonzero where a token is real; `None` for all.
        ids: (B, T) tokens.
    """

    real: Tensor | None
    ids: Tensor | None

    def knows(self) -> bool:
        """Return whether it says anything about its positions; else a scope around it may."""
        return self.ids is not None if self.real is None else self.real.dim() == BATCH_AND_POSITION

    def valid(self, shape: torch.Size, padding: int | None) -> Tensor | None:
        """Return which of the rows of this shape are real; `None` where all are, or nothing fits. Shape: (B, T)."""
        real, ids = self.real, self.ids
        if real is None:
            return None if padding is None or ids is None or ids.shape != shape else ids != padding
        if len(shape) != BATCH_AND_POSITION:
            return None
        if ids is not None and ids.shape == shape and real.shape[1] > shape[1]:
            real = real[:, -shape[1] :]  # the tokens before stand in a cache
        if real.shape != shape:
            real = real.T  # positions first
        return real != 0 if real.shape == shape else None


class Scope(Hook):
    """A pre-hook on a module that is told about padding: keeps what it was told, for the places below.

    Args:
        name: dotted path of the module.
        module: the module.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
    """

    def __init__(self, name: str, module: nn.Module, pulse: Pulse, boundary: Boundary) -> None:
        super().__init__()
        self.name = name
        self._pulse = pulse
        self._boundary = boundary
        names = _parameters(module)
        inverted = [argument for argument in PADDING_MASKS if argument in names]
        self._inverted = bool(inverted)
        self._mask = inverted[0] if inverted else next((argument for argument in REAL_MASKS if argument in names), None)
        self._ids = next((argument for argument in IDS if argument in names), None)
        self._places = {argument: place for place, argument in enumerate(names)}

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the mask and the tokens."""
        if args and isinstance(args[0], Mapping):  # one mapping of everything, as sentence-transformers passes
            features = args[0]
            return _tensor(features.get("attention_mask")), _tensor(features.get("input_ids"))
        return self._argument(self._mask, args, kwargs), self._argument(self._ids, args, kwargs)

    def _argument(self, name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if name is None:
            return None
        place = self._places[name]
        return _tensor(kwargs[name] if name in kwargs else args[place] if place < len(args) else None)

    def wants(self) -> bool:
        """Return whether anything would be looked at."""
        self._pulse.enter(self.key)
        return self._pulse.context.looking

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Keep the mask and the tokens."""
        with self._boundary.guard("scope", self.name):
            real = first == 0 if first is not None and self._inverted else first
            self._pulse.context.masks[self.name] = Mask(real, second)


def _tensor(value: Any) -> Tensor | None:
    return value if isinstance(value, Tensor) else None


def _parameters(module: nn.Module) -> list[str]:
    """Return the names of the arguments of a module's forward."""
    try:
        return list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []


def find_scopes(modules: Mapping[str, nn.Module], places: Sequence[str]) -> list[str]:
    """Return the modules above these places that are told about padding."""
    above = {name.rpartition(".")[0] for name in places}
    while True:
        more = above | {name.rpartition(".")[0] for name in above}
        if more == above:
            break
        above = more
    return [name for name in modules if name in above and _is_told(modules[name])]


def _is_told(module: nn.Module) -> bool:
    names = _parameters(module)
    return not {*PADDING_MASKS, *REAL_MASKS}.isdisjoint(names)
