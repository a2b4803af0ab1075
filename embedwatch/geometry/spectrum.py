"""How many directions a space uses: measures of a covariance spectrum."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "ROUNDING",
    "Spectra",
    "condition_number",
    "effective_rank",
    "eigenvalues",
    "isoscore_star",
    "null_share",
    "participation_ratio",
    "spectra",
]

NULL_VARIANCE = 1e-6
"""A direction whose variance is below this share of the median one among those that have any carries nothing."""

ROUNDING = 1e-14
"""A dimension whose variance is at most this share of its mean square is constant: below the last place of float32."""


class Spectra(NamedTuple):
    """Eigenvalues, descending, in float64.

    Args:
        values: of a covariance or second-moment matrix, (D,).
        standardised: of the same matrix scaled to ones on its diagonal, the correlation matrix of a covariance, (D,).
    """

    values: Tensor
    standardised: Tensor


def eigenvalues(matrix: Tensor) -> Tensor:
    """Return the eigenvalues of a covariance or second-moment matrix, descending, in float64: `spectra(...).values`.

    Shape: (D, D) -> (D,).
    """
    return spectra(matrix).values


def spectra(matrix: Tensor, *, floor: Tensor | None = None) -> Spectra:
    """Return the eigenvalues of a covariance or second-moment matrix as it is, and standardised.

    Products in float32 leave noise in directions that are empty: each entry (i, j) is good to about one unit in the
    last place of `√(m_ii m_jj)`. Scaled to ones on its diagonal, the matrix shows how many directions stand out from
    that noise, twice the last place of its largest eigenvalue, whatever the scales of single dimensions; all others
    are set to zero.

    Args:
        matrix: (D, D).
        floor: (D,), what a dimension's place on the diagonal must exceed to be more than rounding; zero without it.
    """
    wide = matrix.double()
    variance = wide.diagonal().clamp(min=0)
    scale = variance.sqrt() if floor is None else torch.where(variance > floor, variance, 0.0).sqrt()
    inverse = torch.where(scale > 0, scale.reciprocal(), 0.0)
    alike = torch.linalg.eigvalsh(inverse[:, None] * wide * inverse)
    noise = 2 * torch.finfo(torch.float32).eps * alike[-1]
    standardised = torch.where(alike > noise, alike, 0.0).flip(0)
    values: Tensor = torch.linalg.eigvalsh(wide).flip(0).clamp(min=0)
    values[int((standardised > 0).sum()) :] = 0
    return Spectra(values, standardised)


def effective_rank(eigenvalues: Tensor) -> float | None:
    """Return RankMe, the exponential of the entropy of the singular values.

    `exp(-Σ p_k log p_k)` with `p_k = σ_k / Σ σ`, `σ_k = √λ_k`: 1 for a line, D for a sphere. With the eigenvalues of
    the uncentred second moment it is RankMe of the rows (Garrido et al. 2023, arXiv 2210.02885, eq. 1); the measure
    itself is the effective rank of Roy & Vetterli 2007.

    Shape: (D,) -> number in [1, D]; `None` if all are zero.

    Example:
        >>> round(effective_rank(torch.ones(8)), 6)
        8.0
    """
    sigma = eigenvalues.double().clamp(min=0).sqrt()
    total = sigma.sum()
    if not total > 0:
        return None
    share = sigma / total
    return float(torch.exp(torch.special.entr(share).sum()))


def participation_ratio(eigenvalues: Tensor) -> float | None:
    """Return `(Σ λ)² / Σ λ²`: the number of directions that share the variance (Gao et al. 2017).

    Shape: (D,) -> number in [1, D]; `None` if all are zero.

    Example:
        >>> participation_ratio(torch.tensor([1.0, 1.0, 0.0]))
        2.0
    """
    values = eigenvalues.double().clamp(min=0)
    square = values.square().sum()
    return float(values.sum().square() / square) if square > 0 else None


def isoscore_star(eigenvalues: Tensor, *, shrinkage: float = 0.0) -> float | None:
    """Return IsoScore*: 0 when one direction holds all variance, 1 when all directions hold the same.

    With `λ̂ = √D λ / ‖λ‖` and the defect `δ = ‖λ̂ - 1‖ / √(2 (D - √D))`, the score is
    `((D - δ² (D - √D))² - D) / (D (D - 1))` (Rudman et al. 2022, arXiv 2108.07344; Rudman & Eickhoff 2024, arXiv
    2305.19358).
    `shrinkage` ζ moves the spectrum towards its mean, `(1 - ζ) λ + ζ mean(λ)`, for samples too small to fill it.

    Shape: (D,) -> number in [0, 1]; `None` for D = 1 or if all are zero.

    Example:
        >>> round(isoscore_star(torch.ones(4)), 6), round(isoscore_star(torch.tensor([1.0, 0, 0, 0])), 6)
        (1.0, 0.0)
    """
    values = eigenvalues.double().clamp(min=0)
    size = len(values)
    values = (1 - shrinkage) * values + shrinkage * values.mean()
    length = torch.linalg.vector_norm(values)
    if size < 2 or not length > 0:
        return None
    spread = size - math.sqrt(size)
    defect = torch.linalg.vector_norm(math.sqrt(size) * values / length - 1) / math.sqrt(2 * spread)
    return float(((size - defect.square() * spread).square() - size) / (size * (size - 1)))


def null_share(eigenvalues: Tensor) -> float | None:
    """Return the share of directions that carry no variance: below 10⁻⁶ of the median one among those that have any.

    Shape: (D,) -> number in [0, 1]; `None` if all are zero.
    """
    values = eigenvalues.double()
    return float((values < _carrying(values)).double().mean()) if bool((values > 0).any()) else None


def condition_number(eigenvalues: Tensor) -> float | None:
    """Return `√(λ_max / λ_min)` over the directions that carry variance: how unevenly the rows stretch.

    Shape: (D,) -> number ≥ 1; `None` if all are zero.
    """
    values = eigenvalues.double()
    if not bool((values > 0).any()):
        return None
    carrying = values[values >= _carrying(values)]
    return float((carrying.max() / carrying.min()).sqrt())


def _carrying(values: Tensor) -> Tensor:
    """Return the variance from which a direction carries something; one huge direction must not hide the others."""
    return NULL_VARIANCE * values[values > 0].median()
