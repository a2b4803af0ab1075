"""Attention of models of transformers as batches: every query of a text, or a choice, from the scores themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_utils import AttentionInterface

from embedwatch.batch import AttentionBatch

__all__ = ["attention_batches"]


def attention_batches(model: Any, encoded: Sequence[Tensor], *, queries: int, seed: int = 0) -> list[AttentionBatch]:
    """Return a batch for each layer: `queries` of each text, which has no padding, seen by all heads of the layer.

    The model must run with the attention `eager`.
    """
    layers: dict[str, list[AttentionBatch]] = {}
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad(), _captured(model) as captured:
        for number, ids in enumerate(encoded):
            captured.clear()
            model(ids[None])
            chosen = torch.randperm(len(ids), generator=generator)[:queries].sort().values
            for name, (module, query, key, value, mask, scaling) in captured.items():
                batch = _batch(module, query, key, value, mask, scaling, chosen, 1_000_000 * number)
                layers.setdefault(name, []).append(batch)
    return [AttentionBatch.concat(batches) for batches in layers.values()]


def _batch(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    chosen: Tensor,
    offset: int,
) -> AttentionBatch:
    """Return the rows of chosen queries of one text: query (1, H, T, K), key and value (1, H_kv, T, K)."""
    groups = query.shape[1] // key.shape[1]
    keys, values = (each[0].repeat_interleave(groups, 0) for each in (key, value))  # (H, T, K)
    logits = query[0][:, chosen] @ keys.transpose(1, 2) * scaling  # (H, Q, T)
    heads, count, length = logits.shape
    if mask is None:
        visible = torch.ones(count, length, dtype=torch.bool)
        if getattr(module, "is_causal", False):
            visible = visible.tril() if count == length else torch.arange(length)[None] <= chosen[:, None]
    else:
        visible = mask[0, 0, chosen, :length] > torch.finfo(mask.dtype).min / 2
    seen = visible.expand(heads, -1, -1).reshape(-1, length)
    flat = logits.reshape(-1, length)
    weights = torch.softmax(flat.masked_fill(~seen, -torch.inf), 1).view(heads, count, length)
    ends = torch.zeros(heads * count, dtype=torch.int64)
    return AttentionBatch(
        flat,
        seen,
        positions=chosen.repeat(heads),
        heads=torch.arange(heads).repeat_interleave(count),
        queries=(chosen + offset).repeat(heads),
        firsts=ends,
        lasts=ends + length - 1,
        head_size=query.shape[-1],
        outputs=(weights @ values).norm(dim=-1).reshape(-1),
        bounds=(query[0].norm(dim=-1).amax(1) * keys.norm(dim=-1).amax(1) * scaling).repeat_interleave(count),
    )


@contextmanager
def _captured(model: Any) -> Iterator[dict[str, tuple[Any, ...]]]:
    """Note what every attention of the model is given, by the name of its module."""
    names = {module: name for name, module in model.named_modules()}
    captured: dict[str, tuple[Any, ...]] = {}
    original = AttentionInterface.get_interface

    def get_interface(interface: Any, implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        attention = original(interface, implementation, default)

        def capturing(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *rest: Any, **more: Any
        ) -> Any:
            scaling = more.get("scaling") or query.shape[-1] ** -0.5
            captured[names[module]] = (module, query, key, value, mask, scaling)
            return attention(module, query, key, value, mask, *rest, **more)

        return capturing

    AttentionInterface.get_interface = get_interface
    try:
        yield captured
    finally:
        AttentionInterface.get_interface = original
