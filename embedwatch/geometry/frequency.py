"""Norms of tokens beside how often they come."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["frequent_norms", "rank_correlation"]

LEAST = 3
"""A correlation of two points is always 1 or -1."""
HALF = 0.5
"""Frequent are the tokens that together make half of a text."""


def rank_correlation(one: Tensor, other: Tensor) -> float | None:
    """Return Spearman's correlation: Pearson's of ranks, where equal values share the mean of their ranks.

    Shape: (N,), (N,) -> number in [-1, 1]; `None` of fewer than 3 pairs, or where either side is constant.

    Example:
        >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0, 9.0]), torch.tensor([10, 30, 40, 90]))
        1.0
    """
    if len(one) < LEAST:
        return None
    ranks = torch.stack([_ranks(one), _ranks(other)])
    ranks -= ranks.mean(1, keepdim=True)
    squares = ranks.square().sum(1)
    if not bool((squares > 0).all()):
        return None
    return max(-1.0, min(1.0, float((ranks[0] * ranks[1]).sum() / squares.prod().sqrt())))


def _ranks(values: Tensor) -> Tensor:
    _, where, counts = values.unique(return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks: Tensor = (last - (counts.double() - 1) / 2)[where]
    return ranks


def frequent_norms(norms: Tensor, counts: Tensor) -> float | None:
    """Return the mean norm of frequent tokens over that of the other ones that came.

    Frequent are the most frequent tokens that together make half of what was counted.

    Shape: (V,), (V,) -> number; `None` where all that came are frequent, or nothing came.

    Example:
        >>> frequent_norms(torch.tensor([2.0, 1.0, 1.0, 9.0]), torch.tensor([50, 3, 4, 0]))
        2.0
    """
    came = (counts > 0) & norms.isfinite()
    order = counts[came].argsort(descending=True, stable=True)
    sorted_counts, sorted_norms = counts[came][order].double(), norms[came][order].double()
    before = sorted_counts.cumsum(0) - sorted_counts
    often = before < HALF * sorted_counts.sum()
    if not bool(often.any()) or bool(often.all()):
        return None
    rest = float(sorted_norms[~often].mean())
    return float(sorted_norms[often].mean()) / rest if rest > 0 else None
