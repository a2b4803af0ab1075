"""Rotary positions, and three ways to stretch them beyond the trained length. Letters: K head size, T positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .errors import ModelError, check_at_least
from .positions import Positions

__all__ = ["RotaryPositions", "linear_frequencies", "ntk_frequencies", "rotary_frequencies", "yarn_frequencies"]

YARN_FAST, YARN_SLOW = 32.0, 1.0
"""β and α of YaRN: turns within the trained length above which a pair stays, and below which it is stretched."""


def rotary_frequencies(head_size: int, base: float) -> Tensor:
    """Return ω_i = base^(-2i/K) for each of the K/2 pairs, in float64."""
    return base ** -(torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)  # (K/2,)


def linear_frequencies(head_size: int, base: float, factor: float) -> Tensor:
    """Return ω_i / factor: position p is read as p / factor, so that all stay within the trained range.

    References:
        Chen et al. 2023, "Extending context window of large language models via positional interpolation".
        https://arxiv.org/abs/2306.15595
    """
    return rotary_frequencies(head_size, base) / factor


def ntk_frequencies(head_size: int, base: float, factor: float) -> Tensor:
    """Return frequencies for the base `base · factor^(K/(K-2))`: the slowest pair is stretched, the fastest not.

    The last pair has ω = base^-((K-2)/K), which the new base divides by factor exactly; the first has ω = 1 always.
    This is the form with a fixed factor. The "dynamic" form sets the factor from the present length, so that keys in a
    cache, turned at an earlier length, would no longer be what a fresh pass computes.

    References:
        bloc97 2023, "NTK-aware scaled RoPE"; Peng et al. 2023 (YaRN), section 3.1. https://arxiv.org/abs/2309.00071
    """
    if head_size < 4:
        raise ModelError(f"`head_size` must be at least 4 for NTK scaling, got {head_size}; use wider heads")
    return rotary_frequencies(head_size, base * factor ** (head_size / (head_size - 2)))


def yarn_frequencies(head_size: int, base: float, factor: float, length: int) -> Tensor:
    """Return frequencies of which the fast stay, the slow are divided by factor, and those between are blended.

    Pair i makes `r_i = length · ω_i / 2π` turns within the trained length. With more than 32 it tells near offsets
    apart and has seen every angle: it stays. With less than one it has not: it is interpolated. Between the two indices
    (rounded outward, as in the authors' code) the blend is linear in i.

    References:
        Peng et al. 2023, "YaRN", section 3.2. https://arxiv.org/abs/2309.00071
    """

    def pair(turns: float) -> float:
        """Return the index i (a real number) of the pair that makes so many turns within the trained length."""
        return head_size * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    first = max(math.floor(pair(YARN_FAST)), 0)
    last = min(math.ceil(pair(YARN_SLOW)), head_size - 1)
    index = torch.arange(head_size // 2, dtype=torch.float64)  # (K/2,)
    stretched = ((index - first) / max(last - first, 1e-3)).clamp(0, 1)  # (K/2,)
    frequencies = rotary_frequencies(head_size, base)
    return frequencies * (1 - stretched) + frequencies / factor * stretched


def yarn_temperature(factor: float) -> float:
    """Return `√(1/t) = 0.1 ln(factor) + 1`, by which queries and keys grow, and so scores by its square.

    Over a longer context the softmax has more to spread on; the paper found this fit to keep the perplexity lowest.
    """
    return 0.1 * math.log(factor) + 1


class RotaryPositions(Positions):
    """Turns pairs of dimensions of queries and keys by angles that grow with the position (RoPE).

    Pair i of a vector at position p turns by p ω_i, with `ω_i = base^(-2i/K)`. As rotations, `R(p)ᵀ R(q) = R(q-p)`, so
    `(R(p) q) · (R(q) k) = q · R(q-p) k`: scores depend on offsets alone, and lengths do not change.

    Pair i consists of the dimensions i and i + K/2 (as in GPT-NeoX and Llama), not of neighbours as in the paper: the
    same up to an order of dimensions, but without strided access.

    Angles go on beyond the trained length, but pairs slower than that length meet angles they never saw. `scaling`
    mends that: "linear", "ntk" or "yarn", each with a factor by which the context grows. Train without, then load the
    weights into a model with a scaling; `length` stays what it was trained for.

    Shape: (B, H, T, K) -> (B, H, T, K).

    References:
        Su et al. 2021, "RoFormer", section 3.2. https://arxiv.org/abs/2104.09864

    Args:
        head_size: K, even.
        length: the trained length.
        base: ratio of the longest wavelength to the shortest.
        scaling: None, or `{"kind": "linear" | "ntk" | "yarn", "factor": float}`.

    Example:
        >>> rope = RotaryPositions(2, 8)
        >>> rope.rotate(torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([1]))
        tensor([[[[0.5403, 0.8415]]]])
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, head_size: int, length: int, *, base: float = 10_000.0, scaling: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        check_at_least(1, head_size=head_size, length=length)
        if head_size % 2:
            raise ModelError(f"`head_size` must be even, got {head_size}; dimensions turn in pairs")
        self.temperature = 1.0
        kind, factor = (None, 1.0) if scaling is None else (scaling["kind"], float(scaling["factor"]))
        if kind == "linear":
            self.frequencies = linear_frequencies(head_size, base, factor)
        elif kind == "ntk":
            self.frequencies = ntk_frequencies(head_size, base, factor)
        elif kind == "yarn":
            self.frequencies = yarn_frequencies(head_size, base, factor, length)
            self.temperature = yarn_temperature(factor)
        else:
            self.frequencies = rotary_frequencies(head_size, base)
        cos, sin = self._turns(length)
        self.register_buffer("cos", cos, persistent=False)  # (T, K/2)
        self.register_buffer("sin", sin, persistent=False)  # (T, K/2)

    def _turns(self, length: int) -> tuple[Tensor, Tensor]:
        """Return cosine and sine (T, K/2) of all angles, from float64."""
        angles = torch.outer(torch.arange(length, dtype=torch.float64), self.frequencies)  # (T, K/2)
        return (angles.cos() * self.temperature).float(), (angles.sin() * self.temperature).float()

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of `repr`."""
        return f"{2 * len(self.frequencies)}, length={len(self.cos)}, temperature={self.temperature:.4g}"

    def reserve(self, end: int) -> None:
        """Make the tables long enough for positions below `end`."""
        if end > len(self.cos):
            cos, sin = self._turns(max(end, 2 * len(self.cos)))
            self.cos, self.sin = cos.to(self.cos), sin.to(self.sin)  # (2 T, K/2)

    def rotate(self, heads: Tensor, at: Tensor) -> Tensor:
        """Return the queries or keys, turned."""
        cos, sin = self.cos[at].unsqueeze(-3), self.sin[at].unsqueeze(-3)  # (1 or B, 1, T, K/2)
        first, second = heads.float().chunk(2, dim=-1)  # (B, H, T, K/2) each
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)  # (B, H, T, K)
        return turned.to(heads.dtype)
