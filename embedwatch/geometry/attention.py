"""Where rows of attention lie: how spread out, at which keys, how far away, and how alike those of two heads are.

A row is one query of one head. Scores are logits with -Inf at keys that the query does not see; `cumulated` is what the
keys before each place take together, with a zero in front, so that the mass of any stretch of keys is a difference.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "ROUNDING",
    "band_masses",
    "head_cosines",
    "key_masses",
    "mean_distances",
    "normalised_entropies",
    "residual_attention",
    "score_spreads",
    "stretch_masses",
]

NO_KEY = -1
"""What stands for a key that a row does not have."""
ROUNDING = 1e-5
"""What differs from an even share by so small a part of it is rounding of float32."""
LOWEST = -1e4
"""A score so far below the largest takes nothing: e^-104 is 0 in float32."""


def normalised_entropies(scores: Tensor) -> Tensor:
    """Return the entropy of the softmax of each row over its maximum, `-Σ p ln p / ln n`, with n keys seen.

    Shape: (N, T) -> (N,) float64, 1 for a uniform row, 0 for one that looks at a single key; NaN where fewer than two
    keys are seen.

    Example:
        >>> normalised_entropies(torch.tensor([[0.0, 0.0, -torch.inf], [4.0, 0.0, 0.0]]))
        tensor([1.0000, 0.1614], dtype=torch.float64)
    """
    counts = (scores > -torch.inf).sum(1)
    shifted = (scores - scores.amax(1, keepdim=True)).clamp(min=LOWEST)  # (N, T)
    shares = torch.softmax(scores, dim=1)
    entropies = (-shares.amax(1).log() - (shares * shifted).sum(1)).double().clamp(min=0.0)  # ln p = shifted - ln Z
    return torch.where(counts > 1, entropies / counts.double().log(), torch.nan)


def score_spreads(scores: Tensor) -> Tensor:
    """Return the standard deviation of the scores that each row sees, with n in the denominator.

    Shape: (N, T) -> (N,) float64; NaN where fewer than two keys are seen.
    """
    seen = scores > -torch.inf
    counts = seen.sum(1)
    plain = torch.where(seen, scores, 0.0)
    scale = plain.abs().amax(1).clamp(min=torch.finfo(scores.dtype).tiny)  # squares must stay in range
    scaled = plain / scale[:, None]
    centred = torch.where(seen, scaled - (scaled.sum(1) / counts)[:, None], 0.0)  # (N, T)
    rest = centred.sum(1) / counts  # what rounding left of the mean
    variance = centred.square().sum(1) / counts - rest.square()
    return torch.where(counts > 1, scale.double() * variance.clamp(min=0.0).double().sqrt(), torch.nan)


def key_masses(weights: Tensor, keys: Tensor) -> Tensor:
    """Return what each row gives to one key of its own; NaN where `keys` is -1.

    Shape: (N, T), (N,) int64 -> (N,) float64.
    """
    masses = weights.gather(1, keys.clamp(min=0)[:, None])[:, 0].double()
    return masses.masked_fill(keys == NO_KEY, torch.nan)


def stretch_masses(cumulated: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    """Return what each row gives to the keys `start <= k < end`, cut to those there are.

    Shape: (N, T + 1), (N, M) int64, (N, M) int64 -> (N, M).
    """
    keys = cumulated.shape[1] - 1
    before = cumulated.gather(1, starts.clamp(0, keys))
    return (cumulated.gather(1, ends.clamp(0, keys)) - before).clamp(min=0.0)


def mean_distances(weights: Tensor, seen: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far each row looks on average, `Σ a |k - q| / Σ a`, and how far the farthest key lies that it sees.

    Shape: (N, T), (N, T) bool, (N,) int64 -> (N,) float64, (N,) float64; both in keys.
    """
    keys = torch.arange(weights.shape[1], dtype=weights.dtype, device=weights.device)
    distances = (keys - positions.to(weights.dtype)[:, None]).abs()  # (N, T)
    total = weights.sum(1).double()
    return (distances * weights).sum(1).double() / total, (distances * seen).amax(1).double()


def band_masses(cumulated: Tensor, positions: Tensor, bands: int) -> Tensor:
    """Return what each row gives to keys at distance 0, 1, 2-3, 4-7, ... on both sides, the last band open.

    Shape: (N, T + 1), (N,) int64 -> (N, bands).
    """
    reach = torch.tensor([2**band for band in range(bands - 1)], device=positions.device)  # distance < reach
    own = positions[:, None]
    inside = stretch_masses(cumulated, own - reach + 1, own + reach)  # (N, bands - 1)
    inside = torch.cat([torch.zeros_like(inside[:, :1]), inside, cumulated[:, -1:]], 1)  # (N, bands + 1)
    return inside.diff(dim=1).clamp(min=0.0)


def residual_attention(weights: Tensor, seen: Tensor, ends: Tensor) -> Tensor:
    """Return how each row differs from an even one, apart from the keys `ends`: what tells one head from another.

    The first and the last key take a large share in many heads of every trained model, and an even share is what all
    heads have in common; neither says that two heads do the same.

    Shape: (N, T), (N, T) bool, (N, E) int64 -> (N, T) in the precision of `weights`.
    """
    compared = seen.scatter(1, ends, torch.zeros_like(ends, dtype=torch.bool))
    kept = weights * compared
    even = kept.sum(1) / compared.sum(1).clamp(min=1)
    found = kept - even[:, None] * compared
    return torch.where(found.abs() > ROUNDING * even[:, None], found, 0.0)


def head_cosines(vectors: Tensor) -> Tensor:
    """Return the cosine of each pair of heads; 0 for a vector of zeros, and on the diagonal.

    Shape: (H, M) -> (H, H) float64.
    """
    wide = vectors.double()
    norms = wide.norm(dim=1, keepdim=True)
    unit = torch.where(norms > 0, wide / norms, 0.0)
    return (unit @ unit.T).clamp(-1.0, 1.0).fill_diagonal_(0.0)
