"""How evenly directions are spread: cosines, uniformity."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["cosine_shares", "mean_cosine", "median_spread", "pairwise_mean", "uniformity"]


def pairwise_mean(total: Tensor, squares: Tensor, count: int) -> Tensor:
    """Return the mean of `a_i a_j` over all pairs i ≠ j, from `Σ a` and `Σ a²`: `((Σ a)² - Σ a²) / (n (n - 1))`.

    Shape: (...) and (...) -> (...).
    """
    return (total.square() - squares) / (count * (count - 1))


def mean_cosine(total: Tensor, count: int) -> float | None:
    """Return the mean cosine of all pairs of rows from the sum S of the unit rows: `(‖S‖² - n) / (n (n - 1))`.

    Exact, without a pair ever being formed; the anisotropy of Ethayarajh 2019 (arXiv 1909.00512).

    Shape: (D,) -> number in [-1, 1]; `None` for fewer than two rows.

    Example:
        >>> mean_cosine(torch.tensor([2.0, 0.0]), 2)
        1.0
    """
    if count < 2:
        return None
    value = (float(total.double().square().sum()) - count) / (count * (count - 1))
    return min(1.0, max(-1.0, value)) if math.isfinite(value) else None


def cosine_shares(total: Tensor, squares: Tensor, count: int) -> Tensor | None:
    """Return each dimension's share of the mean cosine, from `Σ u` and `Σ u²` of the unit rows u, largest first.

    Dimension j contributes `c_j`, the mean of `u_ij u_kj` over pairs; its share is `|c_j| / Σ |c|`
    (Timkey & van Schijndel 2021, arXiv 2109.04404, eq. 4, where the c_j of one sign make |·| superfluous).

    Shape: (D,) and (D,) -> (D,); `None` for fewer than two rows or where nothing contributes.
    """
    if count < 2:
        return None
    contribution = pairwise_mean(total.double(), squares.double(), count).abs()
    whole = contribution.sum()
    return torch.sort(contribution / whole, descending=True).values if whole > 0 else None


def median_spread(total: Tensor, squares: Tensor, count: int) -> float | None:
    """Return the median over dimensions of what rows do not share, from `Σ u` and `Σ u²` of the unit rows u.

    `1 - c_j / q_j` with `c_j` the mean of `u_ij u_kj` over pairs and `q_j` the mean of `u_ij²`: 1 where rows agree in
    nothing, 0 where all are the same, and `1 / (1 + k²)` where their common part is k times their spread. Dimensions
    of huge scale weigh no more than others, and unit rows keep rows of huge norm from hiding what the rest does.

    Shape: (D,) and (D,) -> number in [0, 1]; `None` for fewer than two rows. Dimensions that are zero in every row
    are left out.

    Example:
        >>> median_spread(torch.tensor([2.0, 2.0]), torch.tensor([2.0, 2.0]), 2)
        0.0
    """
    moving = squares.double() > 0
    if count < 2 or not bool(moving.any()):
        return None
    total, squares = total.double()[moving], squares.double()[moving]
    spread = 1 - pairwise_mean(total, squares, count) / (squares / count)
    return min(1.0, max(0.0, float(spread.median())))


def uniformity(unit: Tensor, *, t: float = 2.0) -> float | None:
    """Return `log mean exp(-t ‖u_i - u_j‖²)` over all pairs i ≠ j of unit rows (Wang & Isola 2020, arXiv 2005.10242).

    Quadratic in the rows: the reference for `random_features`, and right for small samples.

    Shape: (N, D) -> number in [-4 t, 0]; `None` for fewer than two rows.
    """
    if len(unit) < 2:
        return None
    return float(torch.log(torch.exp(-t * torch.pdist(unit.double()).square()).mean()))
