"""Positions as a bias on attention scores: ALiBi and the relative bias of T5. Letters: H heads, T and S positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .errors import check_at_least
from .positions import Positions

__all__ = ["AlibiPositions", "RelativePositions", "alibi_slopes", "relative_buckets"]


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head: `2^(-8i/H)` for i = 1, …, H, if H is a power of two.

    Otherwise the slopes for the next lower power of two, then every other slope of the next higher one.

    Example:
        >>> alibi_slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]
        >>> alibi_slopes(3)
        [0.0625, 0.00390625, 0.25]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-8 * i / (2 * power)) for i in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]


class AlibiPositions(Positions):
    """Lowers attention scores in proportion to the distance, with another slope for each head.

    `score[t, s] = q_t · k_s / √K - m_h |t - s|`. Nothing is learned, and nothing is new beyond the trained length: far
    keys only weigh less. In an encoder, which the paper does not treat, the same holds on both sides.

    Shape: positions (B, T) and (B, S) -> (B, H, T, S).

    References:
        Press et al. 2021, "Train short, test long", section 3 and footnote 7. https://arxiv.org/abs/2108.12409

    Args:
        heads: H.

    Example:
        >>> AlibiPositions(8).bias(torch.tensor([[2]]), torch.tensor([[0, 1, 2]]))[0, 0]
        tensor([[-1.0000, -0.5000, -0.0000]])
    """

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_at_least(1, heads=heads)
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)  # (H,)

    def bias(self, at: Tensor, key_at: Tensor) -> Tensor:
        """Return the bias."""
        distance = (at[:, :, None] - key_at[:, None, :]).abs()  # (1 or B, T, S)
        return -self.slopes[:, None, None] * distance[:, None]  # (1 or B, H, T, S)


def relative_buckets(offset: Tensor, *, bidirectional: bool, buckets: int, distance: int) -> Tensor:
    """Return the bucket of each offset `key - query`: one each for near ones, then wider and wider, the last one open.

    Bidirectional: half of the buckets are for keys after the query. Of the n buckets of a direction, n/2 are exact, the
    others logarithmic up to `distance`: `n/2 + ⌊ln(d / (n/2)) / ln(distance / (n/2)) · n/2⌋`, at most n - 1.
    Causal: keys after the query fall into bucket 0; the mask hides them anyway.

    Example:
        >>> relative_buckets(torch.tensor([-200, -9, -8, -1, 0, 1]), bidirectional=False, buckets=16, distance=128)
        tensor([15,  8,  8,  1,  0,  0])
    """
    first = torch.zeros_like(offset)
    if bidirectional:
        buckets //= 2
        first = (offset > 0).long() * buckets
        steps = offset.abs()
    else:
        steps = (-offset).clamp(min=0)
    exact = buckets // 2
    growth = torch.log(steps.clamp(min=1).float() / exact) / math.log(distance / exact)
    wide = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(steps < exact, steps, wide)


class RelativePositions(Positions):
    """Adds a learned bias to attention scores, for each head and each bucket of offsets, shared by all layers (T5).

    `score[t, s] = q_t · k_s / √K + b_h[bucket(s - t)]`. Offsets beyond the trained length share the last bucket.

    Shape: positions (B, T) and (B, S) -> (B, H, T, S).

    References:
        Raffel et al. 2019, "Exploring the limits of transfer learning", section 2.1. https://arxiv.org/abs/1910.10683

    Args:
        heads: H.
        bidirectional: whether keys after the query are seen (encoder) or not (decoder).
        buckets: number of buckets.
        distance: from here on all offsets share the last bucket.
    """

    def __init__(self, heads: int, *, bidirectional: bool, buckets: int = 32, distance: int = 128) -> None:
        super().__init__()
        check_at_least(1, heads=heads)
        check_at_least(4, buckets=buckets)
        self.bidirectional, self.buckets, self.distance = bidirectional, buckets, distance
        self.table = nn.Embedding(buckets, heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start without any preference."""
        nn.init.zeros_(self.table.weight)

    def bias(self, at: Tensor, key_at: Tensor) -> Tensor:
        """Return the bias."""
        offset = key_at[:, None, :] - at[:, :, None]  # (1 or B, T, S)
        bucket = relative_buckets(
            offset, bidirectional=self.bidirectional, buckets=self.buckets, distance=self.distance
        )
        biases: Tensor = self.table(bucket)  # (1 or B, T, S, H)
        return biases.permute(0, 3, 1, 2)  # (1 or B, H, T, S)
