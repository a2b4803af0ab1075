"""The seam below most attention: `torch.nn.functional.scaled_dot_product_attention`, within modules that attend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.bias import CausalBias

from embedwatch.observe.attention.calls import QueryKeyCall
from embedwatch.observe.attention.crossing import OPEN, ORDER, compiling, detached, watches
from embedwatch.observe.attention.frames import take_open, waiting
from embedwatch.observe.attention.masks import Alignment, Masking
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.site import Unseen

__all__ = ["sdpa_patch"]

FEW, USUAL = 3, 4
"""Dimensions of queries: without heads, and with them."""
CORNERS: dict[str, Alignment] = {"UPPER_LEFT": "first", "LOWER_RIGHT": "last"}
"""Variants of `torch.nn.attention.bias.CausalBias`."""


class _Given(NamedTuple):
    """What the function was given, its names and defaults."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def _wrapped(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Tensor:
        output = (_biased if isinstance(_mask(args, kwargs), CausalBias) else original)(*args, **kwargs)
        if compiling():
            if watches():
                _cross(_Given(*args, **kwargs), output)
        elif waiting() and watches():
            site = take_open()
            if site is not None:
                site.attend(lambda: _call(_Given(*args, **kwargs), output, cross=site.cross))
        return output

    return scaled_dot_product_attention


def _mask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    place = 3
    return args[place] if len(args) > place else kwargs.get("attn_mask")


def _biased(*args: Any, **kwargs: Any) -> Tensor:
    """Do what torch does where a mask is a bias of its own: it compares the function with what stands in its place."""
    mask = _mask(args, kwargs)
    found: Tensor = mask.__torch_function__(functional.scaled_dot_product_attention, (type(mask),), args, kwargs)
    return found


sdpa_patch = Patch(functional, "scaled_dot_product_attention", _wrapped)


def _call(given: _Given, output: Tensor, *, cross: bool) -> QueryKeyCall:
    query, key, mask = given.query.detach(), given.key.detach(), detached(given.attn_mask)
    if query.dim() == FEW:  # (B, T, K): one head
        query, key, output = query[:, None], key[:, None], output[:, None]
        mask = mask[:, None] if mask is not None and mask.dim() == FEW else mask
    if query.dim() != USUAL or key.dim() != USUAL:
        raise Unseen("its queries have more dimensions than sequences, heads and places")
    variant = getattr(given.attn_mask, "variant", None)
    causal = CORNERS.get(getattr(variant, "name", ""), "") or ("first" if given.is_causal else "")
    masks = () if mask is None or variant is not None else (mask,)
    return QueryKeyCall(query, key, _scale(given), output.detach(), Masking(masks, causal=causal), cross=cross)


def _cross(given: _Given, output: Tensor) -> None:
    """Leave an operator in compiled code."""
    if given.query.dim() != USUAL or given.key.dim() != USUAL or hasattr(given.attn_mask, "variant"):
        return
    torch.ops.embedwatch.attend(
        given.query.detach(),
        given.key.detach(),
        output.detach(),
        [] if given.attn_mask is None else [given.attn_mask.detach()],
        None,
        None,
        None,
        ORDER,
        OPEN,
        "",
        float(_scale(given)),
        0.0,
        "first" if given.is_causal else "",
        0,
    )


def _scale(given: _Given) -> float:
    return given.query.shape[-1] ** -0.5 if given.scale is None else given.scale
