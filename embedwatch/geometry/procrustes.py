"""Orthogonal Procrustes: the rotation that takes one space to another, judged on rows that it was not fitted on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Explained", "Rotation", "effective_rows", "fit_rotation", "held_out"]

RANK = 1e-6
"""Directions whose singular value is below this share of the largest are not rotated: nothing was seen of them."""
TWICE = 2
"""Rows needed for each direction that is in use: half of them fit, and they must fill it."""
NOTHING = 1e-18


class Rotation(NamedTuple):
    """`y ≈ mean_to + scale · (x - mean_from) @ matrix`.

    Args:
        mean_from: (D1,).
        mean_to: (D2,).
        matrix: a partial isometry, (D1, D2).
        reached: orthonormal directions that it maps to, (r, D2).
        scale: above 0.
    """

    mean_from: Tensor
    mean_to: Tensor
    matrix: Tensor
    reached: Tensor
    scale: float


class Explained(NamedTuple):
    """Share of the variance of rows that were not fitted on: by rotation, and by rotation and scale."""

    rotation: float
    scaled: float


def fit_rotation(left: Tensor, right: Tensor) -> Rotation:
    """Return the orthogonal map of least squares from one space into another, through the directions that rows fill.

    `R = U Vᵀ` from `XᵀY = U S Vᵀ`, both centred, and the scale `tr S / ‖X‖²` (Schönemann 1966, Psychometrika 31;
    Schönemann & Carroll 1970 for the scale). Where rows are fewer than dimensions it maps their span and drops the
    rest, so that what was never seen is not invented.

    Shape: (N, D1), (N, D2) in float64, N ≥ 2.
    """
    means = left.mean(0), right.mean(0)
    x, y = left - means[0], right - means[1]
    # through the N × N side: never a product of D1 × D2 to be decomposed
    a = torch.linalg.svd(x, full_matrices=False)  # (N, r), (r,), (r, D1)
    b = torch.linalg.svd(y, full_matrices=False)
    inner = torch.linalg.svd((a.S[:, None] * (a.U.T @ b.U)) * b.S[None, :], full_matrices=False)
    kept = RANK * inner.S[0] < inner.S if len(inner.S) else torch.zeros(0, dtype=torch.bool)
    reached = inner.Vh[kept] @ b.Vh  # (r, D2)
    matrix = a.Vh.T @ inner.U[:, kept] @ reached  # (D1, D2)
    size = float(x.square().sum())
    return Rotation(*means, matrix, reached, float(inner.S.sum()) / size if size > 0 else 1.0)


def held_out(left: Tensor, right: Tensor) -> Explained | None:
    """Return what a rotation explains of rows that it was not fitted on: each half is fitted and judged by the other.

    `1 - Σ ‖P y - ŷ‖² / Σ ‖P y‖²` of rows less the mean, where mean, map and P, the projection on the directions that
    the map reaches, come from the fitting half: 1 for any exact rotation, below 0 where the map is worse than the mean.
    Halves are rows of even and of odd place.

    Shape: (N, D1), (N, D2) in float64 -> two numbers up to 1; `None` for fewer than 4 rows, rows that are all alike, or
    fewer than twice as many as there are directions in use.
    """
    count = len(left)
    if count < 2 * TWICE or count < TWICE * effective_rows(left):
        return None
    totals, rotated, scaled = 0.0, 0.0, 0.0
    for first in (0, 1):
        fitted = fit_rotation(left[first::2], right[first::2])
        x = (left[1 - first :: 2] - fitted.mean_from) @ fitted.matrix  # (N / 2, D2)
        y = (right[1 - first :: 2] - fitted.mean_to) @ fitted.reached.T @ fitted.reached
        totals += float(y.square().sum())
        rotated += float((y - x).square().sum())
        scaled += float((y - fitted.scale * x).square().sum())
    if totals <= NOTHING * count:
        return None
    return Explained(1 - rotated / totals, 1 - scaled / totals)


def effective_rows(rows: Tensor) -> float:
    """Return the number of directions that centred rows fill: `exp` of the entropy of their shares of the variance.

    Shape: (N, D) -> number from 0 (all alike) to N - 1 (Roy & Vetterli 2007).
    """
    squares = torch.linalg.svdvals(rows - rows.mean(0)).square()
    total = squares.sum()
    if float(total) <= NOTHING * len(rows):
        return 0.0
    return float(torch.special.entr(squares / total).sum().exp())
