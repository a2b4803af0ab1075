"""Sites: the modules of a model that attend, found by what they are made of, and through which seam each is seen."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import nn

from embedwatch.observe.anatomy import Modules
from embedwatch.observe.attention.code import INTERFACE, SDPA, Code, code_of

__all__ = ["SiteKind", "SiteModule", "find_sites", "head_size_of", "heads_of", "is_cross", "spread"]

ATTENTION = re.compile(r"attention|attn|(?:^|_)mha(?:$|_)", re.IGNORECASE)
CROSS = re.compile(r"cross|enc(?:oder)?_?(?:dec|attn|att)|encdec|multihead_attn", re.IGNORECASE)
"""Names of attention whose keys are another sequence: of transformers, of torch's own decoder layer, and of ours."""
LAYER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A number in a path: of a layer within its stack."""
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
        sure: whether it attends for certain; else it is only made like attention, by a class that says of no heads.
        bound: names that its code's modules have for what it calls, by module and name.
    """

    path: str
    module: nn.Module
    kind: SiteKind
    sure: bool = True
    bound: tuple[tuple[str, str], ...] = ()


def find_sites(modules: Modules) -> list[SiteModule]:
    """Return the modules that attend: by what their code calls and how, or else those that are named after attention.

    A module attends that calls one of the functions for it, or that multiplies matrices twice and takes a softmax. One
    of its name that takes no softmax anywhere is none. Of modules within one another the innermost counts.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, 2)
        >>> [(site.path, site.kind) for site in find_sites(dict(layer.named_modules()))]
        [('self_attn', 'multihead'), ('multihead_attn', 'multihead')]
    """
    known: dict[type, Code] = {}
    codes = {path: code_of(module, known) for path, module in modules.items()}
    found = [path for path, module in modules.items() if _attends(path, module, modules, codes)]
    sites = []
    for path in found:
        module, code = modules[path], codes[path]
        outer = any(other.startswith(f"{path}.") or (not path and other) for other in found)
        if outer and not code.names & {INTERFACE, SDPA}:
            continue
        kind = _kind(path, modules, code)
        sure = kind != "own" or bool(code.names & {INTERFACE, SDPA}) or _is_named(module) or bool(heads_of(module))
        sites.append(SiteModule(path, module, kind, sure, tuple(sorted(code.bound))))
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


def _attends(path: str, module: nn.Module, modules: Modules, codes: dict[str, Code]) -> bool:
    code = codes[path]
    if isinstance(module, nn.MultiheadAttention) or code.names & {INTERFACE, SDPA}:
        return True
    if not any(True for _ in module.parameters()) or type(module).__module__.split(".")[0] == "torch":
        return False
    if _is_named(module):
        within = (codes[other] for other in modules if other.startswith(f"{path}.") or (not path and other))
        return code.may_attend or any(part.may_attend for part in within)
    return code.multiplies_shares


def _is_named(module: nn.Module) -> bool:
    return ATTENTION.search(type(module).__name__) is not None


def _kind(path: str, modules: Modules, code: Code) -> SiteKind:
    if isinstance(modules[path], nn.MultiheadAttention):
        around = modules.get(path.rpartition(".")[0]) if path else None
        return "fused" if isinstance(around, FUSED) else "multihead"
    return "interface" if INTERFACE in code.names and SDPA not in code.names else "own"


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
