"""Embedding, layers, norm: what encoders and decoders have in common.

Letters: B batch, T positions, S keys, M positions in memory, D d_model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cache import Cache
from .config import ModelConfig
from .embedding import InputEmbedding, TokenEmbedding
from .layers import CrossLayer, Layer, Source, View, make_norm
from .masks import attention_mask
from .memory import Memory
from .position_bias import AlibiPositions, RelativePositions
from .positions import LearnedPositions, NoPositions, Positions, SinusoidalPositions
from .rotary import RotaryPositions

__all__ = ["Encoder", "Stack", "count_positions", "make_positions"]


def make_positions(config: ModelConfig, *, causal: bool) -> Positions:
    """Return the scheme that the configuration names."""
    if config.positions == "sinusoidal":
        return SinusoidalPositions(config.d_model, config.length)
    if config.positions == "learned":
        token = 1.0 if config.scaled or not config.tied else config.d_model**-0.5
        return LearnedPositions(config.d_model, config.length, std=token / 2)
    if config.positions == "rope":
        scaling = config.rope_scaling
        return RotaryPositions(config.head_size, config.length, base=config.rope_base, scaling=scaling)
    if config.positions == "alibi":
        return AlibiPositions(config.heads)
    if config.positions == "relative":
        return RelativePositions(config.heads, bidirectional=not causal)
    return NoPositions()


class Stack(nn.Module):
    """`embedding`, `dropout`, `layers`, and with pre-norm a last `norm`; it is run by `Transformer` and by `Encoder`.

    Places to watch: `embedding` (scaled, position-added), `layers.{i}` and what is inside (`Layer`), `norm`: (B, T, D).

    Args:
        config: the architecture.
        causal: whether positions see only those before them.
        cross: whether the layers look at a source.
    """

    def __init__(self, config: ModelConfig, *, causal: bool, cross: bool = False) -> None:
        super().__init__()
        self.config, self.causal = config, causal
        self.embedding = InputEmbedding(
            TokenEmbedding(config.vocabulary, config.d_model, scaled=config.scaled, tied=config.tied),
            make_positions(config, causal=causal),
            segments=config.segments,
            norm=make_norm(config) if config.embedding_norm else None,
        )
        self.dropout = nn.Dropout(config.dropout)
        kind = CrossLayer if cross else Layer
        self.layers = nn.ModuleList(kind(config) for _ in range(config.layers))
        self.norm = make_norm(config) if config.norm == "pre" else nn.Identity()

    def run(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        source: Source | None = None,
        cache: Cache | None = None,
        memory: Memory | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the last hidden states (B, T, D) of tokens (B, T), and what entered each layer."""
        view = self._view(ids, mask, cache, memory)
        x = self.dropout(self.embedding(ids, view.at, segments))  # (B, T, D)
        inputs = []
        for i, layer in enumerate(self.layers):
            inputs.append(x)
            x = layer(
                x,
                view,
                source=source,
                memory=None if memory is None else memory.states[i],
                cache=None if cache is None else cache.layers[i],
                cross_cache=None if cache is None else cache.cross[i],
            )
        if cache is not None and self.config.window is not None:
            cache.keep(self.config.window - 1)
        return self.norm(x), inputs

    def _view(self, ids: Tensor, mask: Tensor | None, cache: Cache | None, memory: Memory | None) -> View:
        """Return where the tokens stand and what they may look at; a cache takes note of them."""
        count = ids.shape[1]
        if memory is not None:
            mask = memory.joined_mask(mask, like=ids)  # (B, M + T)
            count += memory.length
        made_at, following = count_positions(ids, mask, count, first=None if cache is None else cache.next)
        at, key_at = made_at[:, -ids.shape[1] :], made_at  # (1 or B, T), (1 or B, S)
        self._reserve(count if cache is None else cache.length + count, made_at, mask)
        if cache is not None:
            cache.extend(at, following, mask)
            key_at, mask = cache.keys_at(), cache.mask
        positions = self.embedding.positions
        visible = attention_mask(
            ids.shape[1],
            key_at.shape[1],
            causal=self.causal,
            window=self.config.window,
            padding=mask,
            bias=positions.bias(at, key_at),
            device=ids.device,
        )
        return View(visible, positions, at, made_at)

    def _reserve(self, end: int, at: Tensor, mask: Tensor | None) -> None:
        """Let the scheme prepare for `end` positions, or refuse; real tokens are counted only if that matters."""
        if end > self.config.length and mask is not None:
            end = int(at.max()) + 1
        self.embedding.positions.reserve(end)


class Encoder(Stack):
    """Reads a source: every position sees every other.

    Shape: (B, S) int64 -> (B, S, D).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, causal=False)

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the encoded source."""
        return self.run(source, mask=mask)[0]


def count_positions(
    ids: Tensor, mask: Tensor | None, count: int, *, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return positions (1 or B, `count`) and the next one (1 or B, 1): a token stands after as many as are real.

    So a row that is padded on the left has the positions that it has alone. `first` (1 or B, 1) is where to start.

    Example:
        >>> mask = torch.tensor([[False, False, True, True, True]])
        >>> count_positions(mask, mask, 5)
        (tensor([[0, 0, 0, 1, 2]]), tensor([[3]]))
    """
    first = torch.zeros(1, 1, dtype=torch.long, device=ids.device) if first is None else first
    if mask is None:
        return first + torch.arange(count, device=ids.device), first + count  # (1 or B, T), (1 or B, 1)
    seen = mask.long().cumsum(dim=1)  # (B, T)
    return first + (seen - 1).clamp(min=0), first + seen[:, -1:]
