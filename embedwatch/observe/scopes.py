"""Scopes: modules that are told which positions are padding, or are given the model's input; the places below them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.hashing import hash_integers, hash_rows
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.seam import Hook

__all__ = ["Mask", "Padding", "Scope", "find_scopes", "inputs_of", "part_inputs", "real_rows", "scopes_of"]

PADDING_MASKS = ("tgt_key_padding_mask", "src_key_padding_mask", "key_padding_mask")
"""Arguments that are true where a key is padding (torch's own layers). They come first: there `mask` is another one."""
REAL_MASKS = ("attention_mask", "mask", "padding_mask")
"""Arguments that are true, or 1, where a token is real."""
BATCH_AND_POSITION = 2
IDS = ("input_ids", "ids", "source", "src", "tgt")
"""Arguments that hold tokens."""
OTHER_INPUTS = ("pixel_values", "pixel_values_videos", "input_features", "input_values", "images", "image", "audio")
"""Arguments that are no tokens: what masks tokens says nothing about them."""
LABELS = ("labels", "label", "targets", "target")
"""Arguments that are what should come out, and no input."""
PLAIN = (type(None), bool, int, float, str)
IMAGES = "image_embeds"
"""The part of an output that is made of images, where a model is given tokens too."""
COMPARED = 1024
"""Inputs that are no tokens are told apart by so many of their numbers, evenly spread."""
PLACE_BITS = 32
"""A token's number lies in so many bits, its place in the sequence above them."""
SECOND = "decoder_"
"""How arguments begin that are meant for the second of two stacks."""
BESIDES = frozenset({*PADDING_MASKS, *REAL_MASKS, *LABELS})
"""Arguments that are no input, whatever they hold."""
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
        others: (B,) int64 identity of each input, where they are no tokens.
    """

    real: Tensor | None
    ids: Tensor | None
    others: Tensor | None = None

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
        if real is None or padding is None or self.ids is None or self.ids.shape != shape == real.shape:
            return None if real is None else real != 0
        if self.real.shape[-1] <= shape[-1]:
            return real != 0
        # Who generates goes on to the longest text: those that have ended get padding, which the mask calls real.
        return (real != 0) & (self.ids != padding.token)

    def inputs(self, shape: torch.Size, padding: Padding | None) -> Tensor | None:
        """Return the identity of what each row of this shape was made of: its token, or else a whole input.

        `None` where that is not known. Shape: (N,) int64.
        """
        ids = self.ids
        if ids is not None and hasattr(ids, "to_local"):  # spread over devices
            return None
        if ids is not None and ids.numel() == shape.numel():
            return (ids.T if ids.shape != shape == ids.T.shape else ids).reshape(-1).long()
        wholes = self.others if ids is None else _sequences(ids, self.valid(ids.shape, padding))
        if wholes is None or not shape or shape[0] != len(wholes):
            return None
        return wholes[:, None].expand(-1, shape[1:].numel()).reshape(-1)

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


def _sequences(ids: Tensor, real: Tensor | None) -> Tensor:
    """Return the identity of each sequence of tokens, wherever its padding stands. Shape: (B, T) -> (B,) int64."""
    real = torch.ones_like(ids, dtype=torch.int64) if real is None else real.to(ids.device).long()
    hashes = hash_integers(ids.long() + (real.cumsum(1) << PLACE_BITS))  # (B, T)
    return (hashes * real).sum(1)


def _others(values: Tensor) -> Tensor | None:
    """Return the identity of each input that holds no tokens. Shape: (B, ...) -> (B,) int64."""
    odd = values.is_nested or values.layout != torch.strided or values.device.type == "meta" or values.is_complex()
    if odd or hasattr(values, "to_local") or values.dim() < BATCH_AND_POSITION or not values.numel():
        return None
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    flat = values.detach().reshape(len(values), -1)  # (B, F)
    return hash_rows(flat[:, :: math.ceil(flat.shape[1] / COMPARED)])


def real_rows(
    masks: Mapping[str, Mask], scopes: Sequence[str], shape: torch.Size, padding: Padding | None
) -> Tensor | None:
    """Return which rows of this shape are real, by the first of these scopes that says anything about them."""
    fitting = (masks[name] for name in scopes if name in masks and masks[name].fits(shape))
    mask = next(fitting, None)
    return None if mask is None else mask.valid(shape, padding)


class Scope(Hook):
    """A pre-hook on a module that is told about padding or given the input: keeps that for the places below.

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
        """Return the mask, and the tokens or what else the model is given."""
        if args and isinstance(args[0], Mapping):  # one mapping of everything, as sentence-transformers passes
            features = args[0]
            ids, other = _tokens(_first(features, IDS)), next((n for n in OTHER_INPUTS if n in features), None)
            return _first(features, REAL_MASKS), features[other] if ids is None and other is not None else ids
        ids = _tokens(self._argument(self._ids, args, kwargs))
        return self._argument(self._mask, args, kwargs), self._other(args, kwargs) if ids is None else ids

    def _other(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return what the module is given that is no tokens by its name: the whole model may be given one thing."""
        given = {**dict(zip(self._places, args, strict=False)), **kwargs}
        for name in OTHER_INPUTS:
            if isinstance(given.get(name), Tensor):
                return _as_tensor(given[name])
        inputs = {name: value for name, value in given.items() if name not in BESIDES and not isinstance(value, PLAIN)}
        if self.name or len(inputs) != 1 or len(args) > len(self._places):
            return None
        return _as_tensor(next(iter(inputs.values())))

    def _argument(self, name: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        if name is None:
            return None
        place = self._places[name]
        return _tensor(kwargs[name] if name in kwargs else args[place] if place < len(args) else None)

    def wants(self, *, grad: bool) -> bool:
        """Return whether anything would be looked at."""
        return self._pulse.enter(self.key, grad=grad) and not self.off

    def see(self, first: Tensor | None, second: Tensor | None) -> None:
        """Keep the mask and the tokens, or what tells other inputs apart."""
        real = first == 0 if first is not None and self._inverted else first
        ids = _tokens(_tensor(second))
        others = _others(second) if ids is None and second is not None else None
        mask = Mask(real.T if real is not None and self._turned else real, ids, others)
        self._pulse.context.masks[self.name] = mask
        self._boundary.recover(self._stage, self._name)


def _as_tensor(value: Any) -> Tensor | None:
    return value if isinstance(value, Tensor) else None


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
    """Return the modules above these places that are told about padding or given the input, and the model itself."""
    above = {name.rpartition(".")[0] for name in places} | {
        name for name in places if isinstance(modules.get(name), STACKS)
    }
    while True:
        more = above | {name.rpartition(".")[0] for name in above}
        if more == above:
            break
        above = more
    return [
        name
        for name in modules
        if name == "" or (name in above and (_is_told(modules[name]) or _is_given(modules[name])))
    ]


def scopes_of(path: str, scopes: Sequence[str], modules: Mapping[str, nn.Module], tables: Collection[str]) -> list[str]:
    """Return the scopes that say what is padding at a place, the innermost first.

    Args:
        path: of the place.
        scopes: all of them.
        modules: of the model.
        tables: names of embeddings that look tokens up.
    """
    told = [name for name in _around(path, scopes) if name == "" or _is_told(modules[name])]
    return [name for name in told if _speaks(name, path, _parameters(modules[name]), tables)]


def inputs_of(path: str, scopes: Sequence[str], modules: Mapping[str, nn.Module], tables: Collection[str]) -> list[str]:
    """Return the scopes that are given what rows of a place are made of, the innermost first; see `scopes_of`."""
    return [name for name in _around(path, scopes) if _feeds(name, path, _parameters(modules[name]), tables)]


def part_inputs(part: str, scopes: Sequence[str], modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the scopes that are given what a named part of the model's output is made of."""
    if part != IMAGES:
        return [""]
    given = {name: set(_parameters(modules[name])) for name in scopes}
    return [name for name, names in given.items() if not names & {*IDS} and (name == "" or names & {*OTHER_INPUTS})]


def _around(path: str, scopes: Sequence[str]) -> list[str]:
    """Return the scopes around a place, the innermost first."""
    around = [name for name in scopes if name in ("", path) or path.startswith(f"{name}.")]
    return sorted(around, key=len, reverse=True)


def _feeds(scope: str, path: str, names: Collection[str], tables: Collection[str]) -> bool:
    """Return whether a place is made of what a scope is given: of several inputs, of its tokens."""
    one = {*IDS}.isdisjoint(names) and not any(name.startswith(SECOND) for name in names)
    return one or _speaks(scope, path, names, tables)


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


def _is_given(module: nn.Module) -> bool:
    names = _parameters(module)
    return not {*IDS, *OTHER_INPUTS}.isdisjoint(names)
