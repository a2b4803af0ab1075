"""One layer of an encoder or a decoder, and its normalisation. Letters: B batch, T positions, D d_model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention
from .cache import LayerCache
from .config import ModelConfig
from .feed_forward import FeedForward
from .masks import AttentionMask
from .positions import Positions

__all__ = ["CrossLayer", "Layer", "Source", "View", "make_norm"]


@dataclass(frozen=True)
class View:
    """What a layer needs to know beside its input; the same for all layers.

    Attributes:
        mask: who may look at whom.
        positions: the scheme.
        at: positions of the input (1 or B, T).
        key_at: positions of memory and input together.
    """

    mask: AttentionMask
    positions: Positions
    at: Tensor
    key_at: Tensor


@dataclass(frozen=True)
class Source:
    """What cross-attention looks at; the same for all layers.

    Attributes:
        encoded: the encoded source (B, S, D), or None if the cache has its keys and values.
        mask: which of it may be looked at.
    """

    encoded: Tensor | None
    mask: AttentionMask


def make_norm(config: ModelConfig) -> nn.Module:
    """Return a new normalisation over D.

    LayerNorm: `γ ⊙ (x - mean(x)) / √(var(x) + ε) + β`, over the D entries of one position (Ba et al. 2016,
    https://arxiv.org/abs/1607.06450). RMSNorm: `γ ⊙ x / √(mean(x²) + ε)` (Zhang and Sennrich 2019,
    https://arxiv.org/abs/1910.07467).
    """
    kind = nn.LayerNorm if config.norm_kind == "layer" else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_epsilon)


class Layer(nn.Module):
    """Attention and feed-forward, each added to the stream.

    ```
         post (the paper)                     pre
    x ──┬───────────────(+)─ norm ─>     x ──┬──────────────────────(+)─>
        └─ f ─ dropout ──┘                   └─ norm ─ f ─ dropout ──┘
    ```

    The sum `x + f(x)` lets a signal and its gradient pass f unchanged (He et al. 2015), and norms keep its size.
    Post: each norm also scales what passes by, so that gradients differ between depths, and warm-up is needed. Pre: the
    stream is never normalised inside; gradients are even and warm-up matters less, but the stream grows with depth, so
    that one more norm must stand at the end.

    Dropout sets entries of f(x) to 0 with probability p and divides the others by 1 - p, so that the mean stays; in
    evaluation it does nothing (Srivastava et al. 2014). It comes before the sum, as in the paper, section 5.4.

    Places to watch, each (B, T, D): `attention_residual` and `residual` are the sums (`nn.Identity`), the latter after
    the feed-forward; `attention_norm` and `feed_forward_norm` are the norms.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, section 3.1; Xiong et al. 2020 (pre and post), https://arxiv.org/abs/2002.04745

    Args:
        config: the architecture.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.attention_norm = make_norm(config)
        self.attention = _make_attention(config)
        self.attention_residual = nn.Identity()
        self.feed_forward_norm = make_norm(config)
        self.feed_forward = FeedForward(config.d_model, config.width, activation=config.activation)
        self.residual = nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        view: View,
        *,
        source: Source | None = None,
        memory: Tensor | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
    ) -> Tensor:
        """Return the stream after this layer; `memory` (B, M, D) are earlier inputs of it."""
        x = self._attend(x, view, memory, cache)
        if source is not None:
            x = self._look_at(x, source, cross_cache)
        found = self.feed_forward(self._before(self.feed_forward_norm, x))
        return self._add(x, found, self.residual, self.feed_forward_norm)

    def _attend(self, x: Tensor, view: View, memory: Tensor | None, cache: LayerCache | None) -> Tensor:
        seen = x if memory is None else torch.cat([memory, x], dim=1)  # (B, M + T, D)
        seen = self._before(self.attention_norm, seen)
        found = self.attention(
            seen[:, -x.shape[1] :],
            seen,
            mask=view.mask,
            positions=view.positions,
            at=view.at,
            key_at=view.key_at,
            cache=cache,
        )
        return self._add(x, found, self.attention_residual, self.attention_norm)

    def _look_at(self, x: Tensor, source: Source, cache: LayerCache | None) -> Tensor:
        """Return the stream after cross-attention, of which there is none here."""
        return x

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        return norm(x) if self.pre else x

    def _add(self, x: Tensor, found: Tensor, residual: nn.Module, norm: nn.Module) -> Tensor:
        x = residual(x + self.dropout(found))
        return x if self.pre else norm(x)


class CrossLayer(Layer):
    """A layer that looks at an encoded source between its attention and its feed-forward: a decoder's in translation.

    Queries come from the stream, keys and values from the last layer of the encoder, at all its positions.

    More places to watch: `cross_attention`, `cross_residual` (the sum) and `cross_norm`.

    Shape: (B, T, D) -> (B, T, D).

    References:
        Vaswani et al. 2017, section 3.2.3. https://arxiv.org/abs/1706.03762
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.cross_norm = make_norm(config)
        self.cross_attention = _make_attention(config)
        self.cross_residual = nn.Identity()

    def _look_at(self, x: Tensor, source: Source, cache: LayerCache | None) -> Tensor:
        queries = self._before(self.cross_norm, x)
        if source.encoded is None and cache is not None:
            found = self.cross_attention.look_again(queries, source.mask, cache)
        else:
            found = self.cross_attention(queries, source.encoded, mask=source.mask, cache=cache)
        return self._add(x, found, self.cross_residual, self.cross_norm)


def _make_attention(config: ModelConfig) -> MultiHeadAttention:
    dropout = config.attention_dropout
    return MultiHeadAttention(config.d_model, config.heads, kv_heads=config.kv_heads, dropout=dropout)
