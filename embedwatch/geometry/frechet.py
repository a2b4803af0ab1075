"""The Fréchet distance of two Gaussians, and what chance alone makes of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.distributions import chance
from embedwatch.geometry.wishart import drawn_covariance

__all__ = ["Gaussian", "frechet_bias", "frechet_distance"]

SEEDS = (1, 2)
"""Of the two sides that are drawn."""


class Gaussian(NamedTuple):
    """Number, mean (K,) and covariance (K, K) of rows, float64."""

    rows: int
    mean: Tensor
    covariance: Tensor


def frechet_distance(left: Gaussian, right: Gaussian) -> float:
    """Return `‖μ - ν‖² + tr(A + B - 2 (A^(1/2) B A^(1/2))^(1/2))` (Dowson & Landau 1982; Heusel et al. 2017).

    The root of AB need not be real to rounding; that of the symmetric product is.

    Example:
        >>> one = torch.eye(2, dtype=torch.float64)
        >>> sides = [Gaussian(9, mean * torch.ones(2, dtype=torch.float64), one) for mean in (0, 1)]
        >>> round(frechet_distance(*sides), 9)
        2.0
    """
    means = float((left.mean - right.mean).square().sum())
    return means + _between(left.covariance, right.covariance)


def _between(left: Tensor, right: Tensor) -> float:
    values, vectors = torch.linalg.eigh(left)
    root = vectors * values.clamp(min=0).sqrt()  # A = root rootᵀ, and rootᵀ B root has the wanted eigenvalues
    inner = torch.linalg.eigvalsh(root.T @ right @ root).clamp(min=0)
    return max(0.0, float(left.trace() + right.trace() - 2 * inner.sqrt().sum()))


def frechet_bias(halves: tuple[Gaussian, Gaussian], whole: Gaussian, rows: int) -> float:
    """Return the distance that so many healthy rows have from the reference in the mean.

    Two halves of the reference have theirs by chance alone, at their sizes. What it is at others is told by draws of
    covariances with the reference's eigenvalues, one for each side, since they hardly vary. The bias depends on model
    and size, so no table has it (Chong & Forsyth 2019, arXiv 1911.07023).

    Args:
        halves: of the reference.
        whole: the reference.
        rows: number of rows of the other side.
    """
    values = torch.linalg.eigvalsh(whole.covariance).clamp(min=0)
    usual = _drawn(values, halves[0].rows, halves[1].rows)
    return frechet_distance(*halves) * _drawn(values, whole.rows, rows) / usual if usual > 0 else 0.0


def _drawn(values: Tensor, first: int, second: int) -> float:
    """Return the distance of two samples of Gaussian rows: of their means on average, of their covariances once."""
    sides = [drawn_covariance(values, size, seed=seed) for size, seed in zip((first, second), SEEDS, strict=True)]
    return float(values.sum()) * chance(first, second) + _between(sides[0], sides[1])
