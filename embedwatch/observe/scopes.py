"""Scopes: modules that are told which positions are padding, and the places below them."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.seam import Hook

__all__ = ["Mask", "Padding", "Scope", "find_scopes", "scopes_of"]

PADDING_MASKS = ("tgt_key_padding_mask", "src_key_padding_mask", "key_padding_mask")
"""Arguments that are true where a key is padding (torch's own layers). They come first: there `mask` is another one."""
REAL_MASKS = ("attention_mask", "mask", "padding_mask")
"""Arguments that are true, or 1, where a token is real."""
BATCH_AND_POSITION = 2
IDS = ("input_ids", "ids", "source", "src", "tgt")
"""Arguments that hold tokens."""
OTHER_INPUTS = ("pixel_values", "pixel_values_videos", "input_features", "input_values", "images", "image", "audio")
"""Arguments that are no tokens: what masks tokens says nothing about them."""
SECOND = "decoder_"
"""How arguments begin that are meant for the second of two stacks."""
STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
"""Stacks of torch: what they take is what they are seen by."""
TWO_STACKS = frozenset({"src", "tgt"})


class Padding(NamedTuple):
    """What stands for no token, where no mask says so.

    Args:
        token: its number.
        starts: whether the same token also begins each sequence, as in T5.
    """

    token: int
    starts: bool = False


@dataclass(frozen=True)
class Mask:
    """What a scope was told about its positions.

    Args:
        real: (B, T), or longer where it covers what is in a cache; nonzero where a token is real; `None` for all.
        ids: (B, T) tokens.
    """

    real: Tensor | None
    ids: Tensor | None

    def fits(self, shape: torch.Size) -> bool:
        """Return whether it says anything about positions of this shape; else a scope around it may."""
        if self.real is None:
            return self.ids is not None and self.ids.shape == shape
        return self._real(shape) is not None

    def valid(self, shape: torch.Size, padding: Padding | None) -> Tensor | None:
        """Return which of the rows of this shape are real; `None` where all are, or nothing fits. Shape: (B, T)."""
        if self.real is None:
            if padding is None or self.ids is None or self.ids.shape != shape:
                return None
            return _no_padding(self.ids, padding)
        real = self._real(shape)
        return None if real is None else real != 0

    def _real(self, shape: torch.Size) -> Tensor | None:
        real, ids = self.real, self.ids
        if real is None or len(shape) != BATCH_AND_POSITION:
            return None
        if ids is not None and ids.shape == shape and real.shape[1] > shape[1]:
            real = real[:, -shape[1] :]  # the tokens before stand in a cache
        if real.shape != shape:
            real = real.T  # positions first
        return real if real.shape == shape else None


def _no_padding(ids: Tensor, padding: Padding) -> Tensor:
    real = ids != padding.token
    if padding.starts:
        real[:, 0] = True
    return real


class Scope(Hook):
    """A pre-hook on a module that is told about padding: keeps what it was told, for the places below.

    Args:
        name: dotted path of the module.
        module: the module.
        pulse: of the Monitor.
        boundary: where exceptions of ours end.
    """

    before = True

    def __init__(self, name: str, module: nn.Module, pulse: Pulse, boundary: Boundary) -> None:
        super().__init__(boundary, "scope", name)
        self.name = name
        self._pulse = pulse
        names = _parameters(module)
        inverted = [argument for argument in PADDING_MASKS if argument in names]
        self._inverted = bool(inverted)
        self._mask = inverted[0] if inverted else next((argument for argument in REAL_MASKS if argument in names), None)
        self._ids = next((argument for argument in IDS if argument in names), None)
        self._places = {argument: place for place, argument in enumerate(names)}
        self._turned = _is_positions_first(module)

    def pick(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the mask and the tokens."""
        if args and isinstance(args[0], Mapping):  # one mapping of everything, as sentence-transformers passes
            return _first(args[0], REAL_MASKS), _tokens(_first(args[0], IDS))
        return self._argument(self._mask, args, kwargs), _tokens(self._argument(self._ids, args, kwargs))

    def _argument(self, name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if name is None:
            return None
        place = self._places[name]
        return _tensor(kwargs[name] if name in kwargs else args[place] if place < len(args) else None)

    def wants(self, *, grad: bool) -> bool:
        """Return whether anything would be looked at."""
        return self._pulse.enter(self.key, grad=grad) and not self.off

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Keep the mask and the tokens."""
        real = first == 0 if first is not None and self._inverted else first
        self._pulse.context.masks[self.name] = Mask(real.T if real is not None and self._turned else real, second)
        self._boundary.recover(self._stage, self._name)


def _tensor(value: Any) -> Tensor | None:
    return value if isinstance(value, Tensor) and value.dim() == BATCH_AND_POSITION else None


def _tokens(value: Tensor | None) -> Tensor | None:
    return None if value is None or value.is_floating_point() else value


def _first(features: Mapping[str, Any], names: Sequence[str]) -> Tensor | None:
    """Return the first of these entries that a mapping has."""
    for name in names:
        if name in features:
            return _tensor(features[name])
    return None


def _is_positions_first(module: nn.Module) -> bool:
    """Return whether it is a stack of torch that takes vectors as (T, B, D), and masks as (B, T) even so."""
    if not isinstance(module, STACKS):
        return False
    attention = getattr(next(module.layers.children(), None), "self_attn", None)
    return not getattr(attention, "batch_first", True)


def _parameters(module: nn.Module) -> list[str]:
    """Return the names of the arguments of a module's forward."""
    try:
        return list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []


def find_scopes(modules: Mapping[str, nn.Module], places: Sequence[str]) -> list[str]:
    """Return the modules above these places that are told about padding, and the model itself."""
    above = {name.rpartition(".")[0] for name in places} | {
        name for name in places if isinstance(modules.get(name), STACKS)
    }
    while True:
        more = above | {name.rpartition(".")[0] for name in above}
        if more == above:
            break
        above = more
    return [name for name in modules if name == "" or (name in above and _is_told(modules[name]))]


def scopes_of(path: str, scopes: Sequence[str], modules: Mapping[str, nn.Module], tables: Collection[str]) -> list[str]:
    """Return the scopes that speak for a place, the innermost first.

    Args:
        path: of the place.
        scopes: all of them.
        modules: of the model.
        tables: names of embeddings that look tokens up.
    """
    around = [name for name in scopes if name in ("", path) or path.startswith(f"{name}.")]
    spoken = [name for name in around if _speaks(name, path, _parameters(modules[name]), tables)]
    return sorted(spoken, key=len, reverse=True)


def _speaks(scope: str, path: str, names: Collection[str], tables: Collection[str]) -> bool:
    """Return whether the mask of a scope is about the tokens of this place, and not about another input."""
    if set(names) >= TWO_STACKS or any(name.startswith(SECOND) for name in names):
        return False  # each of its stacks is told its own
    if set(OTHER_INPUTS).isdisjoint(names):
        return True
    depth = len(scope.split(".")) if scope else 0
    part = ".".join(path.split(".")[: depth + 1])
    return any(name == part or name.startswith(f"{part}.") for name in tables)


def _is_told(module: nn.Module) -> bool:
    names = _parameters(module)
    return not {*PADDING_MASKS, *REAL_MASKS}.isdisjoint(names)
