"""Whitening: rows in the directions of a covariance, each in units of its own spread."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["DEAD_VARIANCE", "Whitening", "centred_fourth", "dead_energy", "shrinkage", "whiten", "whitening"]

DEAD_VARIANCE = 1e-3
"""A direction with less than this share of the mean variance is dead: constant but for rounding."""
ROWS_PER_DIMENSION = 2
"""Rows needed for each dimension before an empty direction is dead, and not only unseen so far."""
ENERGY_FLOOR = 1e-5
"""Share of the mean variance below which the energy of dead directions is rounding of half precision."""


class Whitening(NamedTuple):
    """A frozen affine map `u = Λ^(-1/2) Vᵀ (x - μ)`.

    Args:
        mean: μ, (D,) float64.
        basis: V, orthonormal directions as columns, by variance, largest first, (D, D) float64.
        variances: Λ after shrinkage, (D,) float64, descending and positive.
        dead: the last so many directions carry nothing and are kept apart.
    """

    mean: Tensor
    basis: Tensor
    variances: Tensor
    dead: int

    @property
    def alive(self) -> int:
        """Number of directions that carry something."""
        return len(self.variances) - self.dead


def centred_fourth(count: int, mean: Tensor, scatter: Tensor, squares: Tensor, cubes: Tensor) -> float:
    """Return `Σ ‖x - μ‖⁴` from sums over rows of which nothing was taken off.

    With `s = ‖x‖²`, `‖x - μ‖² = s - 2 x·μ + ‖μ‖²`. Take a rough mean off the rows first: far from the origin the sums
    cancel.

    Args:
        count: N.
        mean: μ, (D,).
        scatter: `Σ (x - μ)(x - μ)ᵀ`, (D, D).
        squares: `Σ s` and `Σ s²`, (2,).
        cubes: `Σ s x`, (D,).
    """
    offset = float(mean @ mean)
    along = float(mean @ scatter @ mean) + count * offset**2  # Σ (x·μ)²
    total = float(squares[1]) + 4 * along + count * offset**2
    total += -4 * float(cubes @ mean) + 2 * offset * float(squares[0]) - 4 * offset * count * offset
    return max(0.0, total)


def shrinkage(covariance: Tensor, count: int, fourth: float) -> float:
    """Return how far a covariance must move towards a multiple of the identity: the Ledoit-Wolf share.

    `min(β, δ) / δ` with `β = (Σ‖x - μ‖⁴ / n - ‖C‖²) / n` and `δ = ‖C‖² - (tr C)² / D` (Ledoit & Wolf 2004, "A
    well-conditioned estimator for large-dimensional covariance matrices", section 3).

    Shape: (D, D), N in the denominator -> number in [0, 1]; 0 where the covariance is a multiple of the identity.
    """
    square = float(covariance.square().sum())
    spread = square - float(covariance.trace()) ** 2 / len(covariance)
    noise = (fourth / count - square) / count
    return min(1.0, max(0.0, noise / spread)) if spread > 0 else 0.0


def whitening(mean: Tensor, covariance: Tensor, *, count: int, fourth: float) -> Whitening:
    """Return the map that whitens rows of this mean and covariance, shrunk as far as so few rows demand.

    The whitened spread of rows that took no part in the fit is what the shrinkage is for: `(1 - α) C + α tr(C)/D I`.
    Directions below a thousandth of the mean variance are dead, where enough rows were seen to say so: they are floored
    there and measured apart, since dividing by what is next to nothing would let rounding decide.

    Shape: (D,) and (D, D), float64.

    Raises:
        UsageError: if the rows do not vary at all.
    """
    average = float(covariance.trace()) / len(covariance)
    if not average > 0:
        raise UsageError("`covariance` must have variance in some direction, got none; give rows that differ")
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    share = shrinkage(covariance, count, fourth)
    settled = count >= ROWS_PER_DIMENSION * len(values)
    dead = int((values < DEAD_VARIANCE * average).sum()) if settled else 0
    shrunk = ((1 - share) * values + share * average).clamp(min=DEAD_VARIANCE * average)
    return Whitening(mean.double(), vectors, shrunk, min(dead, len(values) - 1))


def whiten(rows: Tensor, by: Whitening) -> Tensor:
    """Return rows in the directions of the map, the dead ones too, in float64.

    The product is taken in the precision of the rows.

    Shape: (N, D) -> (N, D).

    Example:
        >>> unit = Whitening(torch.zeros(2).double(), torch.eye(2).double(), torch.tensor([4.0, 1.0]).double(), dead=0)
        >>> whiten(torch.tensor([[2.0, 3.0]]), unit).tolist()
        [[1.0, 3.0]]
    """
    centred = rows - by.mean.to(rows)
    return (centred @ by.basis.to(rows)).double() / by.variances.to(rows.device).sqrt()


def dead_energy(white: Tensor, by: Whitening) -> Tensor:
    """Return the logarithm of what rows have in the dead directions, floored at rounding; zeros where none is dead.

    A trained model leaves some directions of its output empty, and which they are is its fingerprint: another model,
    noise, a rotation or a projection fills them.

    Shape: (N, D) whitened -> (N,).
    """
    if not by.dead:
        return white.new_zeros(len(white))
    variances = by.variances[by.alive :].to(white.device)
    floor = ENERGY_FLOOR * float(by.variances.mean()) * by.dead
    return torch.log((white[:, by.alive :].square() * variances).sum(1) + floor)
