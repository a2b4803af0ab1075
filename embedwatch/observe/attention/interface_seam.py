"""The seam in transformers: every attention that goes through `AttentionInterface.get_interface`.

It is patched only where transformers has been imported: a model that uses it has done so. What is handed out is ours
only while somebody looks, and in compiled code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from embedwatch.observe.attention.calls import QueryKeyCall
from embedwatch.observe.attention.crossing import OPEN, ORDER, compiling, detached, watches
from embedwatch.observe.attention.frames import take_open
from embedwatch.observe.attention.masks import Alignment, Masking, Rule
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.registry import attending, mark_of, sites_of

__all__ = ["interface_patch"]

HOME, OWNER, NAME = "transformers.modeling_utils", "AttentionInterface", "get_interface"
EAGER, FLASH, FLEX = "eager", "flash", "flex"
"""Parts of the names of implementations that treat masks in their own way."""

Attention = Callable[..., Any]


@functools.cache
def _patch_of(owner: Any) -> Patch:
    return Patch(owner, NAME, _wrapped)


def interface_patch() -> Patch | None:
    """Return the patch; `None` where transformers is not imported, or has no such interface."""
    owner = getattr(sys.modules.get(HOME), OWNER, None)
    return None if getattr(owner, NAME, None) is None else _patch_of(owner)


def _wrapped(original: Callable[..., Attention]) -> Callable[..., Attention]:
    @functools.wraps(original)
    def get_interface(self: Any, implementation: Any, default: Attention) -> Attention:
        function = original(self, implementation, default)
        if compiling() or attending():
            return _seen(function, EAGER if function is default else str(implementation))
        return function

    return get_interface


def _seen(function: Attention, implementation: str) -> Attention:
    """Return an attention that does the same, and is seen."""

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        _take_over(module)
        found = function(module, query, key, value, attention_mask, *args, **kwargs)
        if args or not watches():  # what is given by place has another meaning in each implementation
            return found
        if compiling():
            _cross(implementation, module, query, key, attention_mask, found[0], kwargs)
        else:
            _see(implementation, module, query, key, attention_mask, found[0], kwargs)
        return found

    return attention


def _take_over(module: Any) -> None:
    """Count the attention of the module that attends now as seen, so that no seam below sees it again."""
    if not compiling() and sites_of(id(module)):
        take_open()


def _see(
    implementation: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    mask: Any,
    output: Tensor,
    kwargs: dict[str, Any],
) -> None:
    for site in sites_of(id(module)):

        def call(cross: bool = site.cross) -> QueryKeyCall:  # noqa: FBT001
            causal = _alignment(implementation, module, query, mask, kwargs)
            return QueryKeyCall(
                query.detach(),
                key.detach(),
                _scale(query, kwargs),
                output.detach().transpose(1, 2),  # (B, H, T, V)
                Masking(
                    tuple(each.detach() for each in _masks(implementation, mask, kwargs)),
                    mask if FLASH in implementation and isinstance(mask, Tensor) else None,
                    causal,
                    _window(implementation, kwargs),
                    _rule(mask),
                ),
                float(kwargs.get("softcap") or 0.0),
                kwargs.get("s_aux"),
                cross,
            )

        site.attend(call)


def _cross(
    implementation: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    mask: Any,
    output: Tensor,
    kwargs: dict[str, Any],
) -> None:
    """Leave an operator in compiled code."""
    if mask is not None and not isinstance(mask, Tensor):
        torch.ops.embedwatch.attend_rule(detached(mark_of(module)), ORDER)
        return
    torch.ops.embedwatch.attend(
        query.detach(),
        key.detach(),
        output.detach().transpose(1, 2),
        [each.detach() for each in _masks(implementation, mask, kwargs)],
        mask if FLASH in implementation else None,
        detached(kwargs.get("s_aux")),
        detached(mark_of(module)),
        ORDER,
        OPEN,
        "",
        float(_scale(query, kwargs)),
        float(kwargs.get("softcap") or 0.0),
        _alignment(implementation, module, query, mask, kwargs),
        _window(implementation, kwargs),
    )


def _scale(query: Tensor, kwargs: dict[str, Any]) -> float:
    scale: float | None = kwargs.get("scaling")
    return query.shape[-1] ** -0.5 if scale is None else scale


def _masks(implementation: str, mask: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return what broadcasts to (B, H, T, S)."""
    given = mask if isinstance(mask, Tensor) and FLASH not in implementation else None
    return [each for each in (given, kwargs.get("position_bias")) if each is not None]


def _alignment(implementation: str, module: Any, query: Tensor, mask: Any, kwargs: dict[str, Any]) -> Alignment:
    """Return where a triangle stands that no mask says: eager and flex attention know none."""
    if implementation == EAGER or FLEX in implementation:
        return ""
    told = kwargs.get("is_causal")
    causal = getattr(module, "is_causal", True) if told is None else told
    if FLASH in implementation:
        return "last" if causal else ""
    return "first" if causal and mask is None and query.shape[2] > 1 else ""


def _window(implementation: str, kwargs: dict[str, Any]) -> int:
    """Return the window that no mask says."""
    return int(kwargs.get("sliding_window") or 0) if FLASH in implementation else 0


def _rule(mask: Any) -> Rule | None:
    rule: Rule | None = getattr(mask, "mask_mod", None)
    return rule
