"""Torch's own attention: its queries and keys are projected again, those of the sampled rows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from embedwatch.observe.attention.calls import KEYS, MaskedCall
from embedwatch.observe.attention.masks import Masking
from embedwatch.observe.attention.queries import Chosen
from embedwatch.observe.attention.site import AttentionSite, Unseen

__all__ = ["ProjectedCall", "projected_call"]

UNBATCHED = 2


class _Map(NamedTuple):
    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class ProjectedCall(MaskedCall):
    """What goes into attention, before it becomes queries and keys.

    Args:
        query: (B, T, E).
        key: (B, S, E or wider).
        heads: H.
        to_query, to_key: the maps.
        masking: what hides keys.
        cross: whether keys are other tokens than queries.
    """

    query: Tensor
    key: Tensor
    heads: int
    to_query: _Map
    to_key: _Map
    masking: Masking
    cross: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """B, H, T, S."""
        return self.query.shape[0], self.heads, self.query.shape[1], self.key.shape[1]

    @property
    def head_size(self) -> int:
        """K."""
        return self.to_query.weight.shape[0] // self.heads

    def scores(self, chosen: Chosen) -> tuple[Tensor, Tensor | None]:
        """Return the scores of the chosen queries, and which keys they see."""
        pairs = zip(chosen.items, chosen.index, strict=True)
        rows = torch.stack([self.query[item].index_select(0, index) for item, index in pairs])  # (I, Q, E)
        query = self._split(rows, self.to_query)  # (I, H, Q, K)
        scores = query.new_empty((*query.shape[:3], self.key.shape[1]))  # (I, H, Q, S)
        for place, item in enumerate(chosen.items):
            for first, part in zip(range(0, self.key.shape[1], KEYS), self.key[item].split(KEYS), strict=True):
                key = self._split(part[None], self.to_key)[0]  # (H, up to KEYS, K)
                scores[place, ..., first : first + KEYS] = query[place] @ key.transpose(1, 2)
        scores = scores / self.head_size**0.5
        return self.masked(scores, chosen)

    def _split(self, rows: Tensor, made: _Map) -> Tensor:
        bias = None if made.bias is None else made.bias.float()
        wide: Tensor = functional.linear(rows.float(), made.weight.float(), bias)  # (I, X, E)
        heads: Tensor = wide.unflatten(2, (self.heads, -1)).transpose(1, 2)  # (I, H, X, K)
        return heads

    def bounds(self) -> Tensor | None:
        """Return nothing: most queries and keys are not made again."""
        return None


def projected_call(
    site: AttentionSite, query: Tensor, key: Tensor, mask: Tensor | None, padding: Tensor | None
) -> ProjectedCall:
    """Return the call of `nn.MultiheadAttention`.

    Args:
        site: of the module.
        query: (B, T, E), or without B.
        key: (B, S, E), or without B.
        mask: (T, S) or (B · H, T, S); added, or true where a key is hidden.
        padding: (B, S) or (S,), likewise.

    Raises:
        Unseen: if it adds keys of its own.
    """
    module = cast("nn.MultiheadAttention", site.place.module)
    if module.bias_k is not None or module.add_zero_attn:
        raise Unseen("it adds keys of its own")
    if query.dim() == UNBATCHED:
        query, key = query[None], key[None]
        padding = None if padding is None else padding[None]
    heads = module.num_heads
    masks = []
    if mask is not None:
        masks.append(_shown(mask if mask.dim() == UNBATCHED else mask.unflatten(0, (-1, heads))))
    if padding is not None:
        masks.append(_shown(padding)[:, None, None])  # (B, 1, 1, S)
    to_query, to_key = _maps(module)
    cross = site.cross or query.shape[1] != key.shape[1]
    return ProjectedCall(query.detach(), key.detach(), heads, to_query, to_key, Masking(tuple(masks)), cross=cross)


def _shown(mask: Tensor) -> Tensor:
    """Return a mask that is true where a key may be attended to, or is added."""
    return mask if mask.is_floating_point() else mask == 0


def _maps(module: nn.MultiheadAttention) -> tuple[_Map, _Map]:
    """Return the maps to queries and to keys."""
    size = module.embed_dim
    bias = module.in_proj_bias
    biases = (None, None) if bias is None else (bias[:size], bias[size : 2 * size])
    if module._qkv_same_embed_dim:
        weights = (module.in_proj_weight[:size], module.in_proj_weight[size : 2 * size])
    else:
        weights = (cast("Tensor", module.q_proj_weight), cast("Tensor", module.k_proj_weight))
    return _Map(weights[0].detach(), biases[0]), _Map(weights[1].detach(), biases[1])
