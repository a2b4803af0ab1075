"""Alignment: maps from one space into another, fitted on the same items in both.

Everything is fitted from cross-moments: their size depends on the dimensions, not on the number of pairs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import UsageError
from embedwatch.geometry.retrieval import directions

__all__ = [
    "Affine",
    "PairMoments",
    "low_rank_ridge",
    "norm_ratio",
    "orthogonal",
    "procrustes",
    "ridge",
]

RANK = 1e-5
"""Directions whose singular value is below this share of the largest were not seen, and are not mapped."""
ORTHOGONAL = 1e-5
"""Largest entry of `Wᵀ W - I` of a map that counts as orthogonal."""


class PairMoments(NamedTuple):
    """Moments of pairs of rows, about their means, in float64.

    Parts A and B combine as `S = S_A + S_B + δ_x δ_yᵀ n_A n_B / n` (Chan, Golub & LeVeque 1979), without cancellation.

    Args:
        number: N.
        left_mean: (D1,).
        right_mean: (D2,).
        left: `Σ (x - x̄)(x - x̄)ᵀ`, (D1, D1).
        cross: `Σ (x - x̄)(y - ȳ)ᵀ`, (D1, D2).
        right: `Σ (y - ȳ)(y - ȳ)ᵀ`, (D2, D2).
    """

    number: int
    left_mean: Tensor
    right_mean: Tensor
    left: Tensor
    cross: Tensor
    right: Tensor

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> PairMoments:
        """Return the moments of rows (N, D1) and (N, D2), all finite: three products of matrices."""
        if not len(left):
            return cls.empty(left.shape[1], right.shape[1])
        x, left_mean, left_rest = _centred(left)
        y, right_mean, right_rest = _centred(right)
        count = len(left)
        return cls(
            count,
            left_mean + left_rest,
            right_mean + right_rest,
            (x.T @ x).double() - count * torch.outer(left_rest, left_rest),
            (x.T @ y).double() - count * torch.outer(left_rest, right_rest),
            (y.T @ y).double() - count * torch.outer(right_rest, right_rest),
        )

    @classmethod
    def empty(cls, left: int, right: int) -> PairMoments:
        """Return the moments of no rows."""
        zero = torch.zeros(0, dtype=torch.float64)
        sizes = ((left,), (right,), (left, left), (left, right), (right, right))
        return cls(0, *(zero.new_zeros(size) for size in sizes))

    def merged(self, other: PairMoments) -> PairMoments:
        """Return the moments of the rows of both."""
        if not self.number or not other.number:
            return self if self.number else other
        total = self.number + other.number
        weight = self.number * (other.number / total)
        x, y = other.left_mean - self.left_mean, other.right_mean - self.right_mean
        share = other.number / total
        return PairMoments(
            total,
            self.left_mean + x * share,
            self.right_mean + y * share,
            self.left + other.left + torch.outer(x, x) * weight,
            self.cross + other.cross + torch.outer(x, y) * weight,
            self.right + other.right + torch.outer(y, y) * weight,
        )

    @property
    def uncentred(self) -> Tensor:
        """`Σ x yᵀ`. Shape: (D1, D2)."""
        return self.cross + self.number * torch.outer(self.left_mean, self.right_mean)


class Affine(NamedTuple):
    """`y = x W + b`, between rows that are scaled to norm 1 or not.

    Args:
        matrix: W, (D1, D2).
        offset: b, (D2,).
    """

    matrix: Tensor
    offset: Tensor

    def apply(self, rows: Tensor) -> Tensor:
        """Return the rows, scaled to norm 1, mapped and scaled to norm 1. Shape: (N, D1) -> (N, D2)."""
        matrix, offset = self.matrix.to(rows.dtype), self.offset.to(rows.dtype)
        return directions(directions(rows) @ matrix + offset)


def procrustes(cross: Tensor) -> Tensor:
    """Return the orthogonal map of least squares: `U Vᵀ` of `XᵀY = U S Vᵀ`.

    Schönemann 1966, Psychometrika 31. The dimensions may differ: then it is semi-orthogonal. Directions that the rows
    do not fill are mapped to zero: any completion is orthogonal too, but it maps to what nobody saw, and retrieves
    worse.

    Shape: (D1, D2) -> (D1, D2).

    Example:
        >>> turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
        >>> rows = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(procrustes(rows.T @ (rows @ turn)), turn)
        True
    """
    left, values, right = torch.linalg.svd(cross, full_matrices=False)
    kept = values > RANK * values[0]
    found: Tensor = left[:, kept] @ right[kept]
    return found


def orthogonal(matrix: Tensor) -> bool:
    """Return whether a map turns a space onto another of the same dimension and keeps all lengths."""
    if matrix.shape[0] != matrix.shape[1]:
        return False
    wide = matrix.double()
    return bool((wide.T @ wide - torch.eye(len(wide), dtype=wide.dtype)).abs().max() < ORTHOGONAL)


def norm_ratio(moments: PairMoments) -> float:
    """Return the length of centred right rows over that of left ones: the scale that makes the mapped as long.

    `√(Σ ‖y - ȳ‖² / Σ ‖x - x̄‖²)`; 1 where the left rows are all alike.
    """
    size = float(moments.left.trace())
    return math.sqrt(float(moments.right.trace()) / size) if size > 0 else 1.0


def ridge(moments: PairMoments, strength: float, towards: Tensor | None = None) -> Tensor:
    """Return the linear map of centred rows with the least `Σ ‖y - x W‖² + λ ‖W - A‖²`.

    `W = (S_xx + λ I)⁻¹ (S_xy + λ A)`. Plain ridge draws W to A = 0; drawn to a rotation of the right length instead it
    hardly depends on λ.

    Args:
        moments: of the pairs, best of unit rows: λ counts like that many rows.
        strength: λ, above 0.
        towards: A, (D1, D2).

    Shape: -> (D1, D2).

    Raises:
        UsageError: if the strength is not above 0.
    """
    if not strength > 0:
        raise UsageError(f"`strength` must be above 0, got {strength}; 3 is usual")
    left = moments.left + strength * torch.eye(len(moments.left), dtype=torch.float64)
    right = moments.cross if towards is None else moments.cross + strength * towards
    found: Tensor = torch.linalg.solve(left, right)
    return found


def low_rank_ridge(moments: PairMoments, strength: float, rank: int) -> Tensor:
    """Return the ridge map cut to the directions in which it explains most: reduced-rank regression.

    `W V Vᵀ` with V the first eigenvectors of `Wᵀ S_xx W` (Izenman 1975, "Reduced-rank regression for the multivariate
    linear model").

    Shape: -> (D1, D2), of this rank.
    """
    matrix = ridge(moments, strength)
    _, vectors = torch.linalg.eigh(matrix.T @ moments.left @ matrix)
    main = vectors[:, -rank:]  # (D2, r)
    found: Tensor = matrix @ main @ main.T
    return found


def _centred(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows less a rough mean, that mean, and what rounding left of it: squares then keep a small spread."""
    rough = rows.mean(0)
    centred = rows - rough
    return centred, rough.double(), centred.mean(0).double()
