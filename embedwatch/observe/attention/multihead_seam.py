"""The seams of torch's own attention: a hook on `nn.MultiheadAttention`, or the function that it calls.

The hook sees its fused kernel too. Where a hook would keep a layer around it from another fused kernel, only the
function is watched, and what runs in the kernel stays unseen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from embedwatch.core.boundary import Boundary
from embedwatch.observe.attention.crossing import HOOKED, OPEN, ORDER, compiling, detached, watches
from embedwatch.observe.attention.multihead import projected_call
from embedwatch.observe.attention.patches import Patch
from embedwatch.observe.attention.registry import attending, sites_with
from embedwatch.observe.attention.site import STAGE, AttentionSite
from embedwatch.observe.seam import Hook, leave_alone

__all__ = ["MultiheadHook", "multihead_patch"]

BATCHED = 3


class _Given(NamedTuple):
    """What the module was given."""

    query: Tensor
    key: Tensor
    value: Tensor
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False


class MultiheadHook(Hook):
    """A pre-hook on `nn.MultiheadAttention`.

    Layers that are compiled one by one share what was compiled, whether they have hooks or not. So each has one; that
    of a layer that is not watched sees nothing.

    Args:
        boundary: where exceptions of ours end.
        site: which is watched; `None` where it is not.
    """

    before = True

    def __init__(self, boundary: Boundary, site: AttentionSite | None = None) -> None:
        super().__init__(boundary, STAGE, "" if site is None else site.name)
        self._site = site

    def __call__(self, module: nn.Module, args: tuple[Any, ...], *more: Any) -> None:
        """Be called by the module, with keyword arguments."""
        if len(more) != 1 or not watches():
            return
        if compiling():
            given = _Given(*args, **more[0])
            query, key = _batch_first(given.query, module), _batch_first(given.key, module)
            weight = module.in_proj_weight if module._qkv_same_embed_dim else module.q_proj_weight
            _cross(query, key, cast("Tensor | None", weight), given.attn_mask, given.key_padding_mask, HOOKED)
        elif self._site is not None and self._site.attends:
            site = self._site
            site.entered = True
            site.attend(lambda: _call(site, module, _Given(*args, **more[0])))


leave_alone(MultiheadHook.__call__.__code__)


def _call(site: AttentionSite, module: nn.Module, given: _Given) -> Any:
    query, key = _batch_first(given.query, module), _batch_first(given.key, module)
    return projected_call(site, query, key, given.attn_mask, given.key_padding_mask)


def _batch_first(rows: Tensor, module: Any) -> Tensor:
    return rows if module.batch_first or rows.dim() != BATCHED else rows.transpose(0, 1)  # (B, T, E)


def _cross(
    query: Tensor, key: Tensor, weight: Tensor | None, mask: Tensor | None, padding: Tensor | None, site: int
) -> None:
    """Leave an operator in compiled code."""
    torch.ops.embedwatch.attend_inputs(
        query.detach(), key.detach(), detached(weight), detached(mask), detached(padding), ORDER, site
    )


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def multi_head_attention_forward(query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = original(query, key, *args, **kwargs)
        if not watches():
            return found
        weight = kwargs.get("q_proj_weight") if kwargs.get("use_separate_proj_weight") else _third(args, kwargs)
        if compiling():
            if weight is not None:
                masks = kwargs.get("attn_mask"), kwargs.get("key_padding_mask")
                _cross(_turned(query), _turned(key), weight, *masks, OPEN)
        elif weight is not None and attending():
            mask, padding = kwargs.get("attn_mask"), kwargs.get("key_padding_mask")
            for site in list(sites_with(weight)):
                site.attend(
                    lambda site=site: projected_call(site, _turned(query), _turned(key), mask, padding)  # type: ignore[misc]
                )
        return found

    return multi_head_attention_forward


multihead_patch = Patch(functional, "multi_head_attention_forward", _wrapped, known=True)


def _third(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the weight of the joined maps: the third after the query and the key and the value."""
    place = 3  # value, width, heads
    weight = args[place] if len(args) > place else kwargs.get("in_proj_weight")
    return weight if isinstance(weight, Tensor) else None


def _turned(rows: Tensor) -> Tensor:
    """Return what comes positions first as (B, T, E)."""
    return rows.transpose(0, 1) if rows.dim() == BATCHED else rows
