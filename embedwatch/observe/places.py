"""Places: where in a model vectors are seen. They are found by what a model is made of, not by its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Literal

import torch
from torch import nn

from embedwatch.core.errors import UsageError, did_you_mean
from embedwatch.observe.anatomy import (
    TABLES_AT_MOST,
    Modules,
    adds_positions,
    find_stacks,
    parent_of,
    token_embeddings,
    token_groups,
)

__all__ = ["Place", "Places", "find_places", "find_positions", "token_embeddings", "token_groups", "unwrapped"]

CHOSEN = (0.25, 0.5, 0.75, 1.0)
"""Depths at which hidden states are seen by default, as shares of the stack."""
WRAPPED = ("_orig_mod", "module")
"""Attributes under which `torch.compile` and data-parallel wrappers keep the model."""
WHOLE = "output"
"""Name of what the model itself returns."""
FUSED = (nn.TransformerEncoderLayer,)
"""Layers that leave their fused kernel, and compute something slightly different, when anything inside is hooked."""
NORM = re.compile(r"norm|^ln", re.IGNORECASE)
EMBEDS = re.compile(r"embed", re.IGNORECASE)
POOLER = re.compile(r"pool", re.IGNORECASE)
POOLING = re.compile(r"pooling", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """One place.

    Args:
        name: dotted path of the module, with `.input` at the end where what enters it is seen.
        role: what sort of place it is, one of `embedwatch.core.snapshot.ROLES`, or `position`: what positions add.
        module: the module whose output, or input, is seen.
        side: which of the two.
        whole: whether it is the model itself, whose path is empty.
        optional: whether a model at work may leave it out.
    """

    name: str
    role: str
    module: nn.Module
    side: Literal["output", "input"] = "output"
    whole: bool = False
    optional: bool = False

    @property
    def path(self) -> str:
        """Dotted path of the module."""
        if self.whole:
            return ""
        return self.name.removesuffix("input").removesuffix(".") if self.side == "input" else self.name


Places = str | Sequence[str] | Callable[[str, nn.Module], bool]
"""Names and globs of modules, one or several, or a predicate over (name, module)."""


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside compiled and data-parallel wrappers.

    Raises:
        UsageError: if it is a ScriptModule, whose modules are not called from Python, so that hooks see nothing.

    Example:
        >>> inner = nn.Linear(2, 2)
        >>> unwrapped(nn.DataParallel(inner)) is inner
        True
    """
    while True:
        _refuse_scripted(model)
        for name in WRAPPED:
            inner = model._modules.get(name)
            if isinstance(inner, nn.Module) and len(model._modules) == 1 and not model._parameters:
                model = inner
                break
        else:
            return model


def _refuse_scripted(model: nn.Module) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(
            "`model` must be a torch module in Python, got a ScriptModule; watch it before scripting or tracing"
        )


def find_places(model: nn.Module, places: Places | None = None) -> list[Place]:
    """Return the places of a model: those that were named, or what every Transformer has.

    By default: each embedding of each table of tokens; where tokens and positions are one vector, before the first
    layer; the outputs of a few layers of each stack; the norm after a stack; bags of embeddings, and poolers, unless
    the model pools by another module further out.

    Of `nn.TransformerEncoder` only what enters and leaves the whole is seen by default: its layers run as one fused
    kernel, and compute something slightly different when one of them is hooked.

    Raises:
        UsageError: if a name or glob fits no module, or nothing was found, or the model is a ScriptModule.
    """
    _refuse_scripted(model)
    modules = dict(model.named_modules())
    if places is not None:
        return list(_named(modules, places))
    found = list(_usual(model, modules))
    if not found:
        raise UsageError(
            f"`model` must have embeddings or a stack of layers to find places by itself, got "
            f"{type(model).__name__} with neither; name modules with `places`"
        )
    return found


def _named(modules: Modules, places: Places) -> Iterator[Place]:
    usual = {place.name: place for place in _usual(modules[""], modules)}
    if callable(places):
        chosen = _predicated(places, modules)
    else:
        patterns = _patterns(places)
        chosen = list(dict.fromkeys(name for each in patterns for name in _matching(each, modules, usual)))
    for name in chosen:
        if name in usual:
            yield replace(usual[name], optional=False)
            continue
        module = modules[name if name in modules else name.removesuffix(".input")]
        pooled = name in modules and _is_pooler(module)
        yield Place(name, "pooled" if pooled else "hidden", module, _side(name, modules))


def _patterns(places: str | Sequence[str]) -> list[str]:
    """Return names and globs, one or more."""
    if isinstance(places, str):
        return [places]
    given = list(places) if isinstance(places, Iterable) else None
    if not given or not all(isinstance(each, str) and each for each in given):
        raise UsageError(
            f"`places` must be names or globs of modules, or a predicate over (name, module), got {places!r}; "
            "leave it out to find places by itself"
        )
    return given


def _predicated(places: Callable[[str, nn.Module], bool], modules: Modules) -> list[str]:
    """Return the names of the modules that a predicate chooses."""
    if isinstance(places, (type, nn.Module)) or not _takes_two(places):
        kind = places.__name__ if isinstance(places, type) else type(places).__name__
        raise UsageError(
            f"`places` must be names of modules or a predicate over two arguments, got {kind} that is not; "
            "write `lambda name, module: ...`"
        )
    chosen = [name for name, module in modules.items() if name and places(name, module)]
    if not chosen:
        raise UsageError(
            "`places` must choose at least one module, got a predicate that is false for all; "
            "`model.named_modules()` shows all"
        )
    return chosen


def _takes_two(function: Callable[..., object]) -> bool:
    """Return whether a function can be called with a name and a module; true where it does not say."""
    try:
        inspect.signature(function).bind("", None)
    except TypeError:
        return False
    except ValueError:  # built in, without a signature
        return True
    return True


def _side(name: str, modules: Modules) -> Literal["output", "input"]:
    return "output" if name in modules else "input"


def _matching(pattern: str, modules: Modules, usual: Iterable[str]) -> list[str]:
    """Return the names that fit a name or glob; `*` stays within one part of a dotted path, `**` does not."""
    stem = pattern.removesuffix(".input")
    if pattern and (pattern in modules or pattern in usual or (stem != pattern and stem in modules)):
        return [pattern]
    found = [name for name in modules if name and _fits(name, pattern)]
    if not found:
        hint = did_you_mean(pattern, modules)
        words = f"`places` must name modules of the model, got {pattern!r};", hint, "`model.named_modules()` shows all"
        raise UsageError(" ".join(filter(None, words)))
    return found


def _fits(name: str, pattern: str) -> bool:
    if "**" in pattern:
        return fnmatchcase(name, pattern.replace("**", "*"))
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(fnmatchcase(part, glob) for part, glob in zip(parts, wanted, strict=True))


def _usual(model: nn.Module, modules: Modules) -> Iterator[Place]:
    seen: set[str] = set()
    for place in _candidates(model, modules):
        if place.name not in seen:
            seen.add(place.name)
            yield place


def _candidates(model: nn.Module, modules: Modules) -> Iterator[Place]:
    stacks = find_stacks(modules)
    tables = {name: module for group in token_groups(model) for name, module in group.items()}
    yield from (Place(name or WHOLE, "token", module, whole=not name) for name, module in tables.items())
    for name, layers in stacks.items():
        if any(isinstance(layer, FUSED) for layer in layers.children()):
            yield from _around(name, modules) if _is_fused(name, modules) else _closing_norm(name, modules)
            continue
        yield _entrance(name, stacks, tables, modules)
        number = sum(1 for _ in layers.children())
        depths = sorted({max(0, round(share * number) - 1) for share in CHOSEN})
        yield from (Place(f"{name}.{path}", "hidden", layer) for path, layer in _at(layers, depths))
        yield from _closing_norm(name, modules)
    inside = tuple(f"{name}." for name in stacks)
    outer = {name: module for name, module in modules.items() if not name.startswith(inside)}
    yield from _bags(outer)
    for name, module in outer.items():
        if name and _is_pooler(module) and not _is_replaced(name, outer):
            yield Place(name, "pooled", module, optional=True)


def _bags(modules: Modules) -> list[Place]:
    """Return bags of embeddings, the tallest: what they give is pooled already."""
    bags = {name: module for name, module in modules.items() if isinstance(module, nn.EmbeddingBag)}
    tallest = sorted(bags, key=lambda name: bags[name].num_embeddings, reverse=True)[:TABLES_AT_MOST]
    return [Place(name or WHOLE, "pooled", bags[name], whole=not name) for name in tallest]


def _is_pooler(module: nn.Module) -> bool:
    return POOLER.search(type(module).__name__) is not None and any(True for _ in module.parameters())


def _is_replaced(name: str, modules: Modules) -> bool:
    """Return whether something further out pools in place of this: its vectors would be used by nothing."""
    home = parent_of(name)
    others = (parent_of(other) for other, module in modules.items() if other and POOLING.search(type(module).__name__))
    return any(outer != home and (not outer or home.startswith(f"{outer}.")) for outer in others)


def _at(layers: nn.Module, depths: Iterable[int]) -> list[tuple[str, nn.Module]]:
    children = list(layers.named_children())
    return [children[depth] for depth in depths]


def _entrance(name: str, stacks: dict[str, nn.Module], tables: dict[str, nn.Embedding], modules: Modules) -> Place:
    """Return where tokens and positions are one vector: a module that embeds, or else what enters the first layer."""
    near = max(tables, key=lambda path: len(_common(path, name)), default=None)
    if near is not None:
        shared = _common(near, name)
        home = ".".join(near.split(".")[: len(shared) + 1])
        if home not in tables and not any(stack == home or stack.startswith(f"{home}.") for stack in stacks):
            return Place(home, "embedding", modules[home])
    first, layer = _at(stacks[name], [0])[0]
    norm = _opening_norm(stacks[name])
    if norm:
        return Place(f"{name}.{first}.{norm}", "embedding", layer.get_submodule(norm))
    return Place(f"{name}.{first}.input", "embedding", layer, "input")


def _opening_norm(layers: nn.Module) -> str:
    """Return the norm with which the first layer begins and no other does: what is summed passes through it alone.

    So it is in RWKV, whose table starts at 1e-4 for that reason. Empty where there is none.
    """
    first, *others = layers.children()
    name, module = next(iter(first.named_children()), ("", None))
    opens = NORM.search(type(module).__name__) is not None
    return name if opens and others and not any(hasattr(other, name) for other in others) else ""


def _is_fused(name: str, modules: Modules) -> bool:
    """Return whether what holds these layers takes and gives vectors, as torch's own stack does."""
    return isinstance(modules[name.rpartition(".")[0]], nn.TransformerEncoder)


def _around(name: str, modules: Modules) -> Iterator[Place]:
    """Yield what enters and leaves the module that holds a stack whose layers cannot be hooked unnoticed."""
    parent = name.rpartition(".")[0]
    prefix = f"{parent}." if parent else ""
    yield Place(f"{prefix}input", "embedding", modules[parent], "input")
    yield Place(parent or WHOLE, "hidden", modules[parent], whole=not parent)


def find_positions(model: nn.Module) -> list[Place]:
    """Return the modules outside the layers that add positions, or look them up."""
    modules = dict(model.named_modules())
    inside = tuple(f"{name}." for name in find_stacks(modules))
    return [
        Place(name, "position", module)
        for name, module in modules.items()
        if adds_positions(name, module) and not name.startswith(inside)
    ]


def _common(path: str, other: str) -> list[str]:
    """Return the parts that two dotted paths share at their start."""
    pairs = zip(path.split("."), other.split("."), strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _closing_norm(name: str, modules: Modules) -> Iterator[Place]:
    """Yield the first norm that stands after a stack, beside it or beside what holds it."""
    for _ in range(2):
        parent, _, own = name.rpartition(".")
        children = list(modules[parent].named_children())
        after = [child for child, _ in children].index(own) + 1
        for child, module in children[after:]:
            if NORM.search(type(module).__name__) and not EMBEDS.search(child):
                yield Place(f"{parent}.{child}" if parent else child, "hidden", module)
                return
        if not parent:
            return
        name = parent
