"""Places: where in a model vectors are seen. They are found by what a model is made of, not by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Literal

from torch import nn

from embedwatch.core.errors import UsageError, did_you_mean

__all__ = ["Place", "Places", "find_places", "find_positions", "token_embeddings", "token_groups", "unwrapped"]

BULK = 0.05
"""A list of modules is a stack of layers if it holds at least this share of the parameters outside embeddings."""
CHOSEN = (0.25, 0.5, 0.75, 1.0)
"""Depths at which hidden states are seen by default, as shares of the stack."""
WRAPPED = ("_orig_mod", "module")
"""Attributes under which `torch.compile` and data-parallel wrappers keep the model."""
VOCABULARY_AT_LEAST = 3
WHOLE = "output"
"""Name of what the model itself returns."""
FUSED = (nn.TransformerEncoderLayer,)
"""Layers that leave their fused kernel, and compute something slightly different, when anything inside is hooked."""
LISTS = (nn.ModuleList, nn.Sequential)
NORM = re.compile(r"norm|^ln", re.IGNORECASE)
EMBEDS = re.compile(r"embed", re.IGNORECASE)
POSITIONS = re.compile(r"position|^wpe\b", re.IGNORECASE)
POOLER = re.compile(r"pool", re.IGNORECASE)


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


Modules = Mapping[str, nn.Module]
Places = Sequence[str] | Callable[[str, nn.Module], bool]
"""Names and globs of modules, or a predicate over (name, module)."""


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside compiled and data-parallel wrappers.

    Example:
        >>> inner = nn.Linear(2, 2)
        >>> unwrapped(nn.DataParallel(inner)) is inner
        True
    """
    while True:
        for name in WRAPPED:
            inner = model._modules.get(name)
            if isinstance(inner, nn.Module) and len(model._modules) == 1 and not model._parameters:
                model = inner
                break
        else:
            return model


def find_places(model: nn.Module, places: Places | None = None) -> list[Place]:
    """Return the places of a model: those that were named, or what every Transformer has.

    By default: each embedding that shares the parameter of the input embedding; where tokens and positions are one
    vector, before the first layer; the outputs of a few layers of each stack; the norm after a stack; poolers.

    Raises:
        UsageError: if a name or glob fits no module, or nothing was found.
    """
    modules = dict(model.named_modules())
    if places is None:
        found = list(_usual(model, modules))
        if not found:
            raise UsageError(
                f"`model` must have embeddings or a stack of layers to find places by itself, got "
                f"{type(model).__name__} with neither; name modules with `places`"
            )
        return found
    return list(_named(modules, places, token_embeddings(model)))


def _named(modules: Modules, places: Places, tables: dict[str, nn.Embedding]) -> Iterator[Place]:
    roles = {place.name: place.role for place in _usual(modules[""], modules)}
    if callable(places):
        chosen = [name for name, module in modules.items() if name and places(name, module)]
        if not chosen:
            raise UsageError("`places` must choose at least one module, got a predicate that is false for all")
    else:
        chosen = list(dict.fromkeys(name for pattern in places for name in _matching(pattern, modules)))
    for name in chosen:
        usual = "token" if name in tables else roles.get(name, "hidden")
        yield Place(
            name, usual, modules[name.removesuffix(".input") if name not in modules else name], _side(name, modules)
        )


def _side(name: str, modules: Modules) -> Literal["output", "input"]:
    return "output" if name in modules else "input"


def _matching(pattern: str, modules: Modules) -> list[str]:
    """Return the names that fit a name or glob; `*` stays within one part of a dotted path, `**` does not."""
    stem = pattern.removesuffix(".input")
    if pattern in modules or (stem != pattern and stem in modules):
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
    stacks = _stacks(modules)
    tables = token_embeddings(model)
    yield from (Place(name or WHOLE, "token", module, whole=not name) for name, module in tables.items())
    for name, layers in stacks.items():
        if isinstance(next(layers.children()), FUSED):
            yield from _around(name, modules) if _is_fused(name, modules) else _closing_norm(name, modules)
            continue
        yield _entrance(name, stacks, tables, modules)
        number = sum(1 for _ in layers.children())
        depths = sorted({max(0, round(share * number) - 1) for share in CHOSEN})
        yield from (Place(f"{name}.{path}", "hidden", layer) for path, layer in _at(layers, depths))
        yield from _closing_norm(name, modules)
    inside = tuple(f"{name}." for name in stacks)
    for name, module in modules.items():
        if POOLER.search(type(module).__name__) and list(module.parameters()) and not name.startswith(inside) and name:
            yield Place(name, "pooled", module, optional=True)


def _at(layers: nn.Module, depths: Iterable[int]) -> list[tuple[str, nn.Module]]:
    children = list(layers.named_children())
    return [children[depth] for depth in depths]


def _stacks(modules: Modules) -> dict[str, nn.Module]:
    """Return the lists of layers by name: alike, composite, a fair share of the parameters, none within another."""
    others = [module for module in modules.values() if not isinstance(module, nn.Embedding)]
    outside = sum(parameter.numel() for module in others for parameter in module.parameters(recurse=False))
    found: dict[str, nn.Module] = {}
    for name, module in modules.items():
        within = name.startswith(tuple(f"{stack}." for stack in found))
        if name and not within and isinstance(module, LISTS) and _is_stack(module, BULK * outside):
            found[name] = module
    return found


def _is_stack(module: nn.Module, least: float) -> bool:
    children = list(module.children())
    alike = len({type(child) for child in children}) == 1
    composite = alike and not isinstance(children[0], nn.ModuleList) and any(True for _ in children[0].children())
    return composite and sum(parameter.numel() for parameter in module.parameters()) >= least


def token_embeddings(model: nn.Module) -> dict[str, nn.Embedding]:
    """Return the embeddings that look tokens up, by name: all that share a parameter with the input embedding.

    The input embedding is what `get_input_embeddings` returns, or else the embedding with the most rows.
    """
    every = {name: module for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    source = _input_embedding(model, every)
    if source is None:
        return {}
    return {name: module for name, module in every.items() if module.weight is source.weight}


def token_groups(model: nn.Module) -> list[dict[str, nn.Embedding]]:
    """Return the embedding tables to follow, each as the embeddings that share it: that of the model's input."""
    group = token_embeddings(model)
    return [group] if group else []


def _input_embedding(model: nn.Module, every: dict[str, nn.Embedding]) -> nn.Embedding | None:
    getter = getattr(model, "get_input_embeddings", None)
    if callable(getter):
        try:
            given = getter()
        except Exception:  # noqa: BLE001 - a model without tokens raises what it likes
            given = None
        if isinstance(given, nn.Embedding):
            return given
        if isinstance(given, nn.Module):
            return None  # it embeds something else than tokens
    tables = [
        module
        for name, module in every.items()
        if module.num_embeddings >= VOCABULARY_AT_LEAST and not _adds_positions(name, module)
    ]
    return max(tables, key=lambda module: module.num_embeddings, default=None)


def _entrance(name: str, stacks: dict[str, nn.Module], tables: dict[str, nn.Embedding], modules: Modules) -> Place:
    """Return where tokens and positions are one vector: a module that embeds, or else what enters the first layer."""
    near = max(tables, key=lambda path: len(_common(path, name)), default=None)
    if near is not None:
        shared = _common(near, name)
        home = ".".join(near.split(".")[: len(shared) + 1])
        if home not in tables and not any(stack == home or stack.startswith(f"{home}.") for stack in stacks):
            return Place(home, "embedding", modules[home])
    first, layer = _at(stacks[name], [0])[0]
    return Place(f"{name}.{first}.input", "embedding", layer, "input")


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
    inside = tuple(f"{name}." for name in _stacks(modules))
    return [
        Place(name, "position", module)
        for name, module in modules.items()
        if _adds_positions(name, module) and not name.startswith(inside)
    ]


def _adds_positions(name: str, module: nn.Module) -> bool:
    return POSITIONS.search(f"{name.rpartition('.')[2]} {type(module).__name__}") is not None


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
