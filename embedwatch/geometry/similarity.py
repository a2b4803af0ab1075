"""Two spaces of the same items: what they have in common, and whether the one can stand in for the other.

These are two questions. CKA, mutual neighbours, rank agreement and CCA do not see the coordinates: they are 1 for a
rotated copy, in which nothing is found. Whether vectors of both may meet is seen by searching the one with the other,
as they stand: `cross_overlap` and `own_places`.

All rows are unit rows in float64, row i of the one beside row i of the other; whatever is quadratic in the rows is
computed by chunks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry import retrieval
from embedwatch.geometry.alignment import PairMoments
from embedwatch.geometry.isotropy import uniformity

__all__ = [
    "NOTHING",
    "Mutual",
    "Towers",
    "cka_of_moments",
    "cross_overlap",
    "held_out_cca",
    "kept_neighbours",
    "missed_share",
    "mutual_knn",
    "nearest",
    "own_places",
    "rank_agreement",
    "towers",
]

LEAST_PAIRS = 4
"""The unbiased estimator of dependence divides by N - 3."""
NOTHING = 1e-12
"""A variance below this share of the squared length is rounding."""
QUANTILE = 0.95
"""Of the permuted values: above it, agreement is more than chance."""
PERMUTATIONS = 99
KEPT_VARIANCE = 0.99
RANK = 1e-6
"""Directions whose singular value is below this share of the largest are rounding."""
ROWS_PER_DIRECTION = 3
"""Rows that fit CCA, for each direction that it may turn: of fewer, it finds agreement in noise."""
MOST_ROWS = 1_000
"""Rows whose cosines are ranked: half a million pairs."""


class Mutual(NamedTuple):
    """Mutual k-NN: the share of neighbours that both spaces agree on, beside what pairing at random gives.

    Args:
        share: mean share of each row's k nearest others that are the same on both sides.
        null: its mean where rows are paired at random, `k / (N - 1)`.
        limit: its 95 % quantile over permutations.
        p_value: share of permutations that reach it, the pairing itself counted among them.
    """

    share: float
    null: float
    limit: float
    p_value: float

    @property
    def calibrated(self) -> float:
        """How far it stands above chance: 0 at the 95 % quantile of the permutations or below, 1 for full agreement."""
        return max(0.0, (self.share - self.limit) / (1 - self.limit)) if self.limit < 1 else 0.0


class Towers(NamedTuple):
    """Two modalities, or two towers of one model, in one space.

    Args:
        gap: distance of the two mean vectors, 0 to 2 (Liang et al. 2022, arXiv 2203.02053, section 2).
        alignment: mean squared distance of pairs, 0 to 4 (Wang & Isola 2020, arXiv 2005.10242, eq. 2 with α = 2).
        uniformity_left, uniformity_right: log of the mean potential within a side, -8 to 0 (the same, eq. 3, t = 2).
    """

    gap: float
    alignment: float
    uniformity_left: float | None
    uniformity_right: float | None


def cka_of_moments(moments: PairMoments) -> float | None:
    """Return the debiased linear CKA of unit rows from their moments: no matrix of N × N is formed.

    `HSIC(K, L) / √(HSIC(K, K) HSIC(L, L))` with HSIC₁ of Song et al. 2012 (JMLR 13, eq. 5), whose Gram matrices have no
    diagonal. HSIC₁ does not see a shift of all rows, so that centred rows may stand in, and for unit rows their squared
    lengths are known: `‖x - x̄‖² = 1 - ‖x̄‖² - 2 (x - x̄)·x̄`. With `α = 1 - ‖x̄‖²`, β of the other side, C the
    cross-moments and `q = N α β + 4 x̄ᵀ C ȳ`:
    `HSIC₁ = (‖C‖² - q + N² α β / ((N-1)(N-2)) - 2 q / (N-2)) / (N (N-3))`.

    Range: 1 for one space in other coordinates, near 0 for unrelated ones; the same as `debiased_cka` of all pairs.
    `None` for fewer than 4 rows, or rows that are all alike.
    """
    m = moments
    if m.number < LEAST_PAIRS:
        return None
    own, other = _hsic(m.number, m.left, m.left_mean, m.left_mean), _hsic(m.number, m.right, m.right_mean, m.right_mean)
    if own <= NOTHING or other <= NOTHING:
        return None
    return _hsic(m.number, m.cross, m.left_mean, m.right_mean) / math.sqrt(own * other)


def missed_share(moments: PairMoments) -> float | None:
    """Return what the right side misses of the left one: `Σ ‖(x - x̄) - (y - ȳ)‖² / Σ ‖x - x̄‖²`, from their moments.

    Range: 0 where both differ by one shift at most, 2 and more where they have nothing to do with one another; `None`
    where the left rows are all alike.

    Example:
        >>> rows = torch.eye(3, dtype=torch.float64)
        >>> round(missed_share(PairMoments.of(rows, rows + 5)), 9)
        0.0
    """
    left, right, cross = (float(each.diagonal().sum()) for each in (moments.left, moments.right, moments.cross))
    if left <= NOTHING * moments.number:
        return None
    return max(0.0, (left + right - 2 * cross) / left)


def _hsic(count: int, scatter: Tensor, mean: Tensor, other: Tensor) -> float:
    """Return HSIC₁ of unit rows from the centred moments of one side, or across both."""
    alpha, beta = 1 - float(mean @ mean), 1 - float(other @ other)
    squares = count * alpha * beta + 4 * float(mean @ scatter @ other)
    inner = float(scatter.square().sum()) - squares + count**2 * alpha * beta / ((count - 1) * (count - 2))
    return (inner - 2 * squares / (count - 2)) / (count * (count - 3))


def nearest(queries: Tensor, gallery: Tensor, k: int) -> Tensor:
    """Return the k rows of a gallery with the largest cosine to each query, its own pair left out, nearest first.

    Of rows that are equally near, the first come first.

    Shape: (N, D), (N, D) -> (N, k) int64, k < N.
    """
    return retrieval.nearest(queries, gallery, k, without=torch.arange(len(queries)))


def kept_neighbours(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the share of each row's neighbours that are among those of the other. (N, k), (N, k) -> (N,)."""
    return (found[:, :, None] == wanted[:, None, :]).any(2).double().mean(1)


def cross_overlap(left: Tensor, right: Tensor, k: int) -> Tensor:
    """Return for each row the share of its k nearest in the right space that its left vector finds there as well.

    The test of a drop-in: vectors of the left model search what the right model stored, as they stand.

    Shape: (N, D), (N, D) -> (N,), in [0, 1]; mean k / (N - 1) where the two have nothing to do with one another.
    """
    return kept_neighbours(nearest(left, right, k), nearest(right, right, k))


def own_places(queries: Tensor, gallery: Tensor) -> Tensor:
    """Return at which place each query finds its own pair: the number of gallery rows that are nearer, 0 for the first.

    Of rows that are as near as the pair itself, half count as nearer: twins are no failure, and a gallery that is all
    alike is one. The mean of `places < k` is recall@k.

    Shape: (N, D), (N, D) -> (N,) float64.
    """
    own = torch.arange(len(queries))
    return retrieval.find(queries, gallery, own, k=1, tie=NOTHING).ranks.double() - 1


def mutual_knn(left: Tensor, right: Tensor, k: int, *, seed: int = 0) -> Mutual | None:
    """Return the mutual k-NN of two spaces beside its permutation null.

    `mean_i |A_i ∩ B_i| / k` with the k nearest others of row i on each side (Huh et al. 2024, arXiv 2405.07987). The
    null pairs the rows at random, 99 times, which moves the neighbours along.

    Shape: (N, D1), (N, D2) unit rows; `None` for N ≤ 2 k.
    """
    count = len(left)
    if count <= 2 * k:
        return None
    first, second = nearest(left, left, k), nearest(right, right, k)  # (N, k)
    share = float(kept_neighbours(first, second).mean())
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(PERMUTATIONS, count, generator=generator).argsort(1)  # row i beside row order[i]
    near = torch.zeros(count, count, dtype=torch.bool)
    near.scatter_(1, first, torch.ones_like(first, dtype=torch.bool))
    moved = orders.argsort(1).gather(1, second[orders].flatten(1)).view(PERMUTATIONS, count, k)
    null = near[torch.arange(count)[:, None], moved].double().mean((1, 2))
    reached = int((null >= share).sum())
    return Mutual(share, k / (count - 1), float(null.quantile(QUANTILE)), (1 + reached) / (1 + PERMUTATIONS))


def rank_agreement(left: Tensor, right: Tensor, *, seed: int = 0) -> float | None:
    """Return the rank correlation of all cosines between rows on both sides (RSA, Kriegeskorte et al. 2008).

    Spearman's ρ over i < j; ties have the mean of their ranks. Of more than 1,000 rows as many are drawn.

    Shape: (N, D1), (N, D2) -> number in [-1, 1]; `None` for fewer than 4 rows, or rows that are all alike.
    """
    count = len(left)
    if count < LEAST_PAIRS:
        return None
    if count > MOST_ROWS:
        chosen = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:MOST_ROWS]
        left, right = left[chosen], right[chosen]
    above = torch.triu_indices(len(left), len(left), 1)
    ranks = torch.stack([_ranks((rows @ rows.T)[above[0], above[1]]) for rows in (left, right)])
    ranks -= ranks.mean(1, keepdim=True)
    squares = ranks.square().sum(1)
    if float(squares.min()) <= 0:
        return None
    return float((ranks[0] @ ranks[1]) / squares.prod().sqrt())


def _ranks(values: Tensor) -> Tensor:
    """Return the rank of each value, the mean of their ranks for equal ones. (M,) -> (M,) float64."""
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks: Tensor = (ends - (counts.double() - 1) / 2)[inverse]
    return ranks


def held_out_cca(left: Tensor, right: Tensor, *, directions: int = 64) -> float | None:
    """Return the mean correlation of the leading canonical directions on rows that they were not fitted on.

    Both sides are reduced to the directions of 99 % of their variance (SVCCA, Raghu et al. 2017, arXiv 1706.05806), at
    most one for three fitting rows; CCA is fitted on the rows of even place and its directions are correlated on the
    others. In sample, CCA of unrelated rows is as high as rows are few.

    Shape: (N, D1), (N, D2) -> number, near 0 for unrelated rows; `None` for fewer than 24 rows, or rows all alike.
    """
    count = len(left)
    if count < 8 * ROWS_PER_DIRECTION:
        return None
    whitened = [_whitening(rows[::2]) for rows in (left, right)]
    if any(matrix.shape[1] == 0 for _, matrix in whitened):
        return None
    (x, other_x), (y, other_y) = (
        ((rows[::2] - mean) @ matrix, (rows[1::2] - mean) @ matrix)
        for rows, (mean, matrix) in zip((left, right), whitened, strict=True)
    )
    inner = torch.linalg.svd(x.T @ y, full_matrices=False)
    kept = min(directions, len(inner.S))
    a, b = other_x @ inner.U[:, :kept], other_y @ inner.Vh[:kept].T  # (N / 2, kept)
    a, b = a - a.mean(0), b - b.mean(0)
    scale = (a.square().sum(0) * b.square().sum(0)).sqrt().clamp(min=NOTHING)
    return float(((a * b).sum(0) / scale).mean())


def _whitening(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean, and what brings the leading directions of the rest to unit scatter. (N, D) -> (D,), (D, r)."""
    mean = rows.mean(0)
    found = torch.linalg.svd(rows - mean, full_matrices=False)
    squares = found.S.square()
    total = float(squares.sum())
    if total <= NOTHING * len(rows):
        return mean, rows.new_zeros(rows.shape[1], 0)
    enough = int((squares.cumsum(0) < KEPT_VARIANCE * total).sum()) + 1
    kept = min(enough, max(1, len(rows) // ROWS_PER_DIRECTION), int((RANK * found.S[0] < found.S).sum()))
    return mean, found.Vh[:kept].T / found.S[:kept]


def towers(left: Tensor, right: Tensor) -> Towers:
    """Return gap, alignment and uniformity of two towers of one space.

    Shape: (N, D), (N, D) unit rows; of more than 1,000, the first so many give the uniformity.

    Example:
        >>> both = torch.eye(2, dtype=torch.float64)
        >>> found = towers(both, both.flip(1))
        >>> found.gap, found.alignment
        (0.0, 2.0)
    """
    gap = float((left.mean(0) - right.mean(0)).norm())
    alignment = float((left - right).square().sum(1).mean())
    return Towers(gap, alignment, *(uniformity(rows[:MOST_ROWS]) for rows in (left, right)))
