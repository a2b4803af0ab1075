"""Sites: the modules of a model that attend, found by what they are made of, and through which seam each is seen."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Literal

from torch import nn

from embedwatch.observe.anatomy import Modules

__all__ = ["SiteKind", "SiteModule", "find_sites", "head_size_of", "heads_of", "is_cross", "spread"]

ATTENTION = re.compile(r"attention|attn|(?:^|_)mha(?:$|_)", re.IGNORECASE)
CROSS = re.compile(r"cross|enc(?:oder)?_?(?:dec|attn|att)|encdec|multihead_attn", re.IGNORECASE)
"""Names of attention whose keys are another sequence: of transformers, of torch's own decoder layer, and of ours."""
LAYER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A number in a path: of a layer within its stack."""
INTERFACE, SDPA = "get_interface", "scaled_dot_product_attention"
FUSED = (nn.TransformerEncoderLayer,)
"""Layers that leave their fused kernel, and compute something slightly different, when anything inside is hooked."""
HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head", "heads", "nhead", "h")
HEAD_SIZES = ("attention_head_size", "head_dim", "head_size", "d_head", "d_kv", "key_value_proj_dim", "dim_per_head")

SiteKind = Literal["interface", "multihead", "fused", "own"]
"""Through which seam attention is seen: `interface`, that of transformers; `multihead`, a hook on torch's own module;
`fused`, torch's function below it, where a hook would change what is computed; `own`, whatever the module turns out to
call: `scaled_dot_product_attention`, a softmax over scores, or the interface too."""


@dataclass(frozen=True)
class SiteModule:
    """A module that attends.

    Args:
        path: dotted path, empty for the model itself.
        module: the module.
        kind: how it is seen.
    """

    path: str
    module: nn.Module
    kind: SiteKind


def find_sites(modules: Modules) -> list[SiteModule]:
    """Return the modules that attend: by what their code calls, or else the innermost that are named after attention.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, 2)
        >>> [(site.path, site.kind) for site in find_sites(dict(layer.named_modules()))]
        [('self_attn', 'multihead'), ('multihead_attn', 'multihead')]
    """
    known: dict[type, frozenset[str]] = {}
    called = {path: known.setdefault(type(module), _called(type(module))) for path, module in modules.items()}
    found = [path for path, module in modules.items() if _attends(module, called[path])]
    sites = []
    for path in found:
        module = modules[path]
        outer = any(other.startswith(f"{path}.") or (not path and other) for other in found)
        if outer and not called[path] & {INTERFACE, SDPA}:
            continue
        sites.append(SiteModule(path, module, _kind(path, modules, called[path])))
    return sites


def spread(sites: Sequence[SiteModule], most: int) -> list[SiteModule]:
    """Return at most so many sites, evenly spread over each stack from its first to its last, in their order.

    Stacks share evenly, and each keeps one site at least.

    Example:
        >>> sites = [SiteModule(f"layers.{layer}.attention", nn.Identity(), "own") for layer in range(32)]
        >>> [site.path.split(".")[1] for site in spread(sites, 5)]
        ['0', '8', '16', '23', '31']
    """
    stacks: dict[str, list[SiteModule]] = {}
    for site in sites:
        stacks.setdefault(LAYER.sub("", site.path), []).append(site)
    share = max(1, most // max(len(stacks), 1))
    kept = {site.path for stack in stacks.values() for site in _evenly(stack, share)}
    return [site for site in sites if site.path in kept]


def _evenly(stack: Sequence[SiteModule], most: int) -> list[SiteModule]:
    if len(stack) <= most:
        return list(stack)
    last = len(stack) - 1
    if most == 1:
        return [stack[last]]
    return [stack[round(turn * last / (most - 1))] for turn in range(most)]


def _attends(module: nn.Module, called: frozenset[str]) -> bool:
    if isinstance(module, nn.MultiheadAttention) or called & {INTERFACE, SDPA}:
        return True
    named = ATTENTION.search(type(module).__name__) is not None
    return named and any(True for _ in module.parameters()) and type(module).__module__.split(".")[0] != "torch"


def _kind(path: str, modules: Modules, called: frozenset[str]) -> SiteKind:
    if isinstance(modules[path], nn.MultiheadAttention):
        around = modules.get(path.rpartition(".")[0]) if path else None
        return "fused" if isinstance(around, FUSED) else "multihead"
    return "interface" if INTERFACE in called and SDPA not in called else "own"


def _called(kind: type) -> frozenset[str]:
    """Return the names that the code of a class and of its ancestors uses, down to torch's and a library's base."""
    names: set[str] = set()
    for each in kind.__mro__:
        home = each.__module__
        if home.startswith("torch.") or home in ("builtins", "transformers.modeling_utils"):
            continue
        for function in vars(each).values():
            code = getattr(inspect.unwrap(function), "__code__", None) if inspect.isfunction(function) else None
            names.update(_names(code) if isinstance(code, CodeType) else ())
    return frozenset(names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_cross(site: SiteModule) -> bool:
    """Return whether keys are another sequence than queries, by names."""
    own = ".".join(site.path.split(".")[-2:])
    return bool(getattr(site.module, "is_cross_attention", False)) or CROSS.search(own) is not None


def heads_of(module: nn.Module) -> int | None:
    """Return the number of heads that a module says it has."""
    return next(_numbers(module, HEADS), None)


def head_size_of(module: nn.Module, heads: int) -> int:
    """Return K that a module says it has, or that the width of its first map makes; 0 where neither is known."""
    told = next(_numbers(module, HEAD_SIZES), None)
    if told is not None:
        return told
    first = next((each for each in module.modules() if isinstance(each, nn.Linear)), None)
    return 0 if first is None else first.in_features // heads


def _numbers(module: nn.Module, names: tuple[str, ...]) -> Iterator[int]:
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield value
