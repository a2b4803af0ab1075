"""Scopes: modules that are told which positions are padding, or are given the model's input; the places below them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.hashing import hash_rows
from embedwatch.observe.masks import BATCH_AND_POSITION, Mask
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.seam import Hook

__all__ = ["Scope", "find_scopes", "inputs_of", "part_inputs", "scopes_of"]

PADDING_MASKS = ("tgt_key_padding_mask", "src_key_padding_mask", "key_padding_mask")
"""Arguments that are true where a key is padding (torch's own layers). They come first: there `mask` is another one."""
REAL_MASKS = ("attention_mask", "mask", "padding_mask")
"""Arguments that are true, or 1, where a token is real."""
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
SECOND = "decoder_"
"""How arguments begin that are meant for the second of two stacks."""
BESIDES = frozenset({*PADDING_MASKS, *REAL_MASKS, *LABELS})
"""Arguments that are no input, whatever they hold."""
STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)
"""Stacks of torch: what they take is what they are seen by."""
TWO_STACKS = frozenset({"src", "tgt"})


def _others(values: Tensor) -> Tensor | None:
    """Return the identity of each input that holds no tokens. Shape: (B, ...) -> (B,) int64."""
    odd = values.is_nested or values.layout != torch.strided or values.device.type == "meta" or values.is_complex()
    if odd or hasattr(values, "to_local") or values.dim() < BATCH_AND_POSITION or not values.numel():
        return None
    if values.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    flat = values.detach().reshape(len(values), -1)  # (B, F)
    return hash_rows(flat[:, :: math.ceil(flat.shape[1] / COMPARED)])


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
