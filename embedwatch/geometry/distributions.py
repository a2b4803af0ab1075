"""Distances of distributions that are known by counts in bins, and what chance alone makes of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Apart",
    "chance",
    "jensen_shannon",
    "jensen_shannon_noise",
    "kolmogorov_smirnov",
    "kolmogorov_smirnov_noise",
    "stability_index",
    "stability_index_noise",
    "wasserstein",
    "wasserstein_noise",
]

UNSEEN = 0.5
"""Rows that each bin of a stability index has more than were counted: a bin without any has no logarithm."""
MEAN_OF_BRIDGE = math.sqrt(math.pi / 2) * math.log(2)
"""Mean of the largest |Brownian bridge|, which `√(n m / (n + m))` times the distance tends to."""


class Apart(NamedTuple):
    """A distance and the most by which counting in bins may understate it."""

    value: float
    error: float


def chance(first: float, second: float) -> float:
    """Return `1/n + 1/m`, the variance that two samples of these sizes have together.

    Example:
        >>> chance(1_000, 500)
        0.003
    """
    return 1 / first + 1 / second


def _shares(counts: Tensor) -> Tensor:
    wide = counts.double()
    return wide / wide.sum(-1, keepdim=True).clamp(min=1)


def kolmogorov_smirnov(first: Tensor, second: Tensor) -> Apart:
    """Return the largest difference of the two shares of rows below any edge.

    Between edges the difference exceeds that at one of them by at most the smaller mass in the bin.

    Shape: (B,), (B,) counts.

    Example:
        >>> kolmogorov_smirnov(torch.tensor([5, 5]), torch.tensor([10, 0])).value
        0.5
    """
    one, two = _shares(first), _shares(second)
    below = [side.cumsum(0).double() / side.sum().clamp(min=1) for side in (first, second)]
    value = float((below[0] - below[1]).abs().max())
    return Apart(value, float(torch.minimum(one, two).max()))


def kolmogorov_smirnov_noise(first: int, second: int) -> float:
    """Return the mean distance of two samples of one distribution (Kolmogorov 1933)."""
    return MEAN_OF_BRIDGE * math.sqrt(chance(first, second))


def stability_index(first: Tensor, second: Tensor) -> float:
    """Return the population stability index `Σ (q - p) ln(q / p)`, half a row added to each bin.

    Shape: (B,), (B,) counts.

    Example:
        >>> stability_index(torch.tensor([50, 50]), torch.tensor([50, 50]))
        0.0
    """
    one, two = _shares(first.double() + UNSEEN), _shares(second.double() + UNSEEN)
    return float(((two - one) * (two / one).log()).sum())


def stability_index_noise(bins: int, first: int, second: int) -> float:
    """Return the mean index of two samples of one distribution: a χ² of so many bins (Yurdakul 2018)."""
    return (bins - 1) * chance(first, second)


def jensen_shannon(first: Tensor, second: Tensor) -> float:
    """Return the Jensen-Shannon distance, the root of the divergence to base 2: 0 to 1 (Endres & Schindelin 2003).

    Shape: (B,), (B,) counts.

    Example:
        >>> jensen_shannon(torch.tensor([9, 0]), torch.tensor([0, 4]))
        1.0
    """
    one, two = _shares(first), _shares(second)
    middle = (one + two) / 2
    parts = [torch.special.xlogy(side, side / middle.clamp(min=1e-300)).sum() for side in (one, two)]
    return math.sqrt(min(1.0, max(0.0, float(sum(parts)) / 2 / math.log(2))))


def jensen_shannon_noise(bins: int, first: int, second: int) -> float:
    """Return the root mean square distance of two samples of one distribution: an eighth of a χ² of so many bins."""
    return math.sqrt((bins - 1) / 8 / math.log(2) * chance(first, second))


def wasserstein(edges: Tensor, first: Tensor, second: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Return `∫ |F - G|` of each row of histograms: how far the mass must move (Vallender 1974).

    F - G is known at the edges and taken to be straight between them. Beyond the outer ones the difference of the
    two excesses counts, the least it can be.

    Shape: edges (P, E), counts (P, E + 1) twice, excesses (P,) twice -> (P,).

    Args:
        edges: inner edges of the bins, ascending.
        first: counts of one side.
        second: counts of the other.
        below: mean of `max(0, first edge - x)` on the first side less that on the second.
        above: the same for `max(0, x - last edge)`.
    """
    apart = (_shares(first).cumsum(1) - _shares(second).cumsum(1))[:, :-1]  # (P, E)
    left, right, width = apart[:, :-1], apart[:, 1:], edges[:, 1:] - edges[:, :-1]
    total = left.abs() + right.abs()
    crossing = (left.square() + right.square()) / (2 * total.clamp(min=1e-300))
    area = torch.where(left * right < 0, crossing, total / 2)
    found: Tensor = (area * width).sum(1) + below.abs() + above.abs()
    return found


def wasserstein_noise(edges: Tensor, counts: Tensor, first: int, second: int) -> Tensor:
    """Return the mean distance of two samples of one distribution: `√(2/π) ∫ √(F (1 - F) (1/n + 1/m))` over the edges.

    Shape: (P, E), (P, E + 1) -> (P,).
    """
    below = _shares(counts).cumsum(1)[:, :-1]
    spread = (below * (1 - below)).clamp(min=0).sqrt()  # (P, E)
    inner = ((spread[:, 1:] + spread[:, :-1]) / 2 * (edges[:, 1:] - edges[:, :-1])).sum(1)
    found: Tensor = inner * math.sqrt(2 / math.pi * chance(first, second))
    return found
