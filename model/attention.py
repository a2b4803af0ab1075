"""Multi-head attention. Letters: B batch, T queries, S keys, D d_model, H heads, G key and value heads, K head size."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from .cache import LayerCache
from .errors import ModelError, check_at_least
from .masks import AttentionMask
from .positions import Positions

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(nn.Module):
    """Every query takes a weighted mean of values; the weights are a softmax over how well keys answer it.

    `Attention(Q, K, V) = softmax(Q Kᵀ / √K + bias) V`, in each of H heads, which are joined and projected.

    Why √K: if the entries of q and k are independent with mean 0 and variance 1, then `q · k = Σ_i q_i k_i` is a sum
    of K products of mean 0 and variance `E[q_i²] E[k_i²] = 1`. So its variance is K, and scores spread by √K. As they
    are, the softmax of wide heads saturates on one key, where its gradient `p (1 - p)` vanishes. Divided by √K, they
    have variance 1 for every head size.

    Why many heads: one softmax makes one mean. H heads of size K = D / H look at H places at the cost of one head of
    size D.

    Grouped: G < H key and value heads, each for H / G query heads, make the cache H / G times smaller. G = 1 is
    multi-query attention.

    Places to watch: `query` and `key`, after position encoding, and `value`; (B, H or G, T, K), each an `nn.Identity`.
    With a cache, `key` and `value` see new positions only.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, section 3.2 and footnote 4. https://arxiv.org/abs/1706.03762
        Shazeer 2019 (multi-query), https://arxiv.org/abs/1911.02150; Ainslie et al. 2023 (grouped),
        https://arxiv.org/abs/2305.13245

    Args:
        d_model: D.
        heads: H.
        kv_heads: G; None: H.
        dropout: rate on the attention weights.

    Example:
        >>> import torch
        >>> MultiHeadAttention(8, 2)(torch.zeros(1, 3, 8)).shape
        torch.Size([1, 3, 8])
    """

    def __init__(self, d_model: int, heads: int, *, kv_heads: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        check_at_least(1, d_model=d_model, heads=heads, kv_heads=kv_heads)
        self.heads, self.groups = heads, kv_heads or heads
        if d_model % heads or heads % self.groups:
            raise ModelError(
                f"`heads` must be a divisor of `d_model` and a multiple of `kv_heads`, got {heads} with {d_model} and "
                f"{self.groups}; every head gets D / H dimensions, every key head as many query heads"
            )
        self.head_size, self.dropout = d_model // heads, dropout
        self.to_query = nn.Linear(d_model, d_model)
        self.to_key = nn.Linear(d_model, self.groups * self.head_size)
        self.to_value = nn.Linear(d_model, self.groups * self.head_size)
        self.to_output = nn.Linear(d_model, d_model)
        self.query, self.key, self.value = nn.Identity(), nn.Identity(), nn.Identity()

    def forward(
        self,
        queries: Tensor,
        context: Tensor | None = None,
        *,
        mask: AttentionMask | None = None,
        positions: Positions | None = None,
        at: Tensor | None = None,
        key_at: Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Return what each query found.

        Args:
            queries: (B, T, D).
            context: what keys and values are made from (B, S, D); None: the queries themselves.
            mask: who may look at whom, and the bias of positions.
            positions: turns queries and keys.
            at: positions of the queries, (1 or B, T).
            key_at: positions of the context, (1 or B, S); None: `at`.
            cache: joins its keys and values with the new ones.
        """
        context = queries if context is None else context
        query = self._split(self.to_query(queries))  # (B, H, T, K)
        key = self._split(self.to_key(context))  # (B, G, S, K)
        if positions is not None and at is not None:
            query = positions.rotate(query, at)
            key = positions.rotate(key, at if key_at is None else key_at)
        query, key, value = self.query(query), self.key(key), self.value(self._split(self.to_value(context)))
        if cache is not None:
            cache.append(key, value)
            key, value = cache.together()
        return self._attend(query, key, value, mask or AttentionMask())

    def look_again(self, queries: Tensor, mask: AttentionMask, cache: LayerCache) -> Tensor:
        """Return what new queries find in a context that is in the cache already (cross-attention)."""
        query = self.query(self._split(self.to_query(queries)))  # (B, H, T, K)
        return self._attend(query, *cache.together(), mask)

    def _split(self, projected: Tensor) -> Tensor:
        """Cut (B, T, H·K) into heads (B, H, T, K)."""
        batch, length, _ = projected.shape
        return projected.view(batch, length, -1, self.head_size).transpose(1, 2)  # (B, H, T, K)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask) -> Tensor:
        values = mask.values
        if values is not None and values.is_floating_point():
            values = values.to(query.dtype)
        found = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=values,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=mask.causal,
            enable_gqa=self.groups != self.heads,
        )  # (B, H, T, K)
        if mask.empty is not None:
            found = found.masked_fill(mask.empty, 0.0)
        joined = found.transpose(1, 2).flatten(2)  # (B, T, D)
        output: Tensor = self.to_output(joined)  # (B, T, D)
        return output

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"heads={self.heads}, kv_heads={self.groups}, head_size={self.head_size}"
