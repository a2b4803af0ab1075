"""The same items in two spaces: how far each moved, whose neighbours it keeps, and what the two have in common.

All rows are unit rows in float64, row i of the one beside row i of the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "Overlap",
    "centred_cosine",
    "cosine_distances",
    "debiased_cka",
    "displaced",
    "leading",
    "neighbour_overlap",
    "offset_share",
    "similarity_kept",
    "unit",
    "used_width",
]

TIE = 1e-9
"""Cosines within this of the k-th nearest count as equally near, so that the order of rows decides nothing."""
NOTHING = 1e-12
"""A spread of cosines below this is rounding."""
LEAST_PAIRS = 4
"""The unbiased estimator of dependence divides by N - 3."""


class Overlap(NamedTuple):
    """Mean share of each row's nearest neighbours that it keeps, and what that is where rows are paired at random."""

    share: float
    chance: float


def unit(rows: Tensor) -> Tensor:
    """Return the rows scaled to norm 1, in float64; NaN where a row has no direction.

    Shape: (N, D) -> (N, D).
    """
    wide = rows.double()
    norms: Tensor = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return wide / norms


def cosine_distances(left: Tensor, right: Tensor) -> Tensor:
    """Return `1 - cos` of each pair, as `½ ‖u - v‖²`, which keeps its digits where two rows are nearly one.

    Shape: (N, D), (N, D) unit rows -> (N,).

    Range: 0 to 2.

    Example:
        >>> cosine_distances(unit(torch.tensor([[2.0, 0.0]])), unit(torch.tensor([[0.0, 3.0]]))).tolist()
        [1.0]
    """
    return (left - right).square().sum(1) / 2


def neighbour_overlap(left: Tensor, right: Tensor, k: int) -> Overlap | None:
    """Return the mean share of the k nearest rows that are the same on both sides.

    `mean_i |A_i ∩ B_i| / max(|A_i|, |B_i|)`, where `A_i` and `B_i` are the k nearest others of row i by cosine, and all
    that are as near as the k-th. Its mean over all pairings of the rows, the value by permutation, has a closed form:
    `mean_ij |A_i| |B_j| / ((N - 1) max(|A_i|, |B_j|))`, which is k / (N - 1) without ties.

    Shape: (N, D1), (N, D2) unit rows -> two numbers in [0, 1]; `None` for N ≤ 2 k.
    """
    count = len(left)
    if count <= 2 * k:
        return None
    near, other = _nearest(left, k), _nearest(right, k)  # (N, N)
    sizes, others = near.sum(1).double(), other.sum(1).double()
    share = (near & other).sum(1) / torch.maximum(sizes, others)
    chance = torch.minimum(sizes[:, None], others[None, :]).mean() / (count - 1)
    return Overlap(float(share.mean()), float(chance))


def _nearest(rows: Tensor, k: int) -> Tensor:
    """Return which rows are among the k nearest of each, or tie with the last of them. (N, D) -> (N, N) bool."""
    cosines = rows @ rows.T
    cosines.fill_diagonal_(-torch.inf)
    return cosines >= cosines.topk(k, dim=1).values[:, -1:] - TIE


def debiased_cka(left: Tensor, right: Tensor) -> float | None:
    """Return the linear CKA of two spaces with the unbiased estimator of HSIC.

    `HSIC(K, L) / √(HSIC(K, K) HSIC(L, L))` with `K = X Xᵀ`, `L = Y Yᵀ` and HSIC₁ of Song et al. 2012 (JMLR 13, eq. 5),
    as Nguyen, Raghu & Kornblith 2021 (arXiv 2010.15327) use it; plain CKA (Kornblith et al. 2019, arXiv 1905.00414)
    grows toward 1 where rows are few beside dimensions.

    Shape: (N, D1), (N, D2) -> number, 1 for the same space in other coordinates and near 0 for unrelated ones; `None`
    for fewer than 4 rows, or rows that are all alike.
    """
    if len(left) < LEAST_PAIRS:
        return None
    first, second = _hollow(left), _hollow(right)
    own, other = _hsic(first, first), _hsic(second, second)
    if own <= NOTHING or other <= NOTHING:
        return None
    return _hsic(first, second) / math.sqrt(own * other)


def _hollow(rows: Tensor) -> Tensor:
    """Return the Gram matrix with zeros on its diagonal. (N, D) -> (N, N)."""
    gram = rows @ rows.T
    return gram.fill_diagonal_(0)


def _hsic(first: Tensor, second: Tensor) -> float:
    count = len(first)
    sums, others = first.sum(1), second.sum(1)
    inner = (first * second).sum() + sums.sum() * others.sum() / ((count - 1) * (count - 2))
    return float((inner - 2 * (sums @ others) / (count - 2)) / (count * (count - 3)))


def similarity_kept(left: Tensor, right: Tensor) -> float | None:
    """Return the share of the variance of all cosines between rows that the other side keeps.

    `1 - Σ (s'_ij - s_ij)² / Σ (s_ij - s̄)²` over i ≠ j, at least 0. It is 1 exactly where one orthogonal map takes all
    rows of the one to those of the other (equal Gram matrices), for any number of rows; nothing is fitted.

    Shape: (N, D1), (N, D2) unit rows -> number in [0, 1]; `None` for fewer than 4 rows, or rows that are all alike.
    """
    count = len(left)
    if count < LEAST_PAIRS:
        return None
    above = torch.triu_indices(count, count, 1)
    before, now = ((rows @ rows.T)[above[0], above[1]] for rows in (left, right))
    spread = float((before - before.mean()).square().sum())
    if spread <= NOTHING * len(before):
        return None
    return max(0.0, 1 - float((now - before).square().sum()) / spread)


def offset_share(left: Tensor, right: Tensor) -> float | None:
    """Return the share of all movement that one shift, common to all rows, explains.

    `(N s - 1) / (N - 1)` with `s = N ‖d̄‖² / Σ ‖d_i‖²` and `d_i = v_i - u_i`, at least 0: rows that move each on their
    own have 1 / N in s on average.

    Shape: (N, D), (N, D) unit rows -> number in [0, 1]; `None` where nothing moved, and for one row.
    """
    moved = right - left  # (N, D)
    total, count = float(moved.square().sum()), len(moved)
    if count < 2 or total <= NOTHING**2 * count:
        return None
    share = count * float(moved.mean(0).square().sum()) / total
    return max(0.0, (count * share - 1) / (count - 1))


def centred_cosine(left: Tensor, right: Tensor) -> float | None:
    """Return the cosine between all rows of the one and of the other, each side less its mean, taken as one vector.

    `Σ x_i · y_i / √(Σ ‖x_i‖² Σ ‖y_i‖²)`. Near 0 where the coordinates have nothing to do with one another, however
    alike the two spaces are (another model, a rotation): nothing is fitted, and the mean of all rows plays no part.

    Shape: (N, D), (N, D) unit rows -> number in [-1, 1]; `None` where rows are all alike.
    """
    x, y = left - left.mean(0), right - right.mean(0)
    sizes = float(x.square().sum()), float(y.square().sum())
    if min(sizes) <= NOTHING * len(x):
        return None
    return float((x * y).sum()) / math.sqrt(sizes[0] * sizes[1])


def displaced(left: Tensor, right: Tensor, floor: float) -> Tensor:
    """Return which rows are now where another row was, and not where they were: another item's vector.

    Shape: (N, D), (N, D) unit rows -> (N,) bool.
    """
    there = 1 - right @ left.T <= floor  # (N, N), row i now beside row j then
    own = cosine_distances(left, right) <= floor
    return ~own & (there & ~torch.eye(len(left), dtype=torch.bool)).any(1)


def used_width(rows: Tensor) -> int:
    """Return the number of leading dimensions up to the last one that is not zero in every row. (N, D) -> number."""
    used = (rows != 0).any(0).nonzero()[:, 0]
    return int(used[-1]) + 1 if len(used) else 0


def leading(left: Tensor, right: Tensor) -> float | None:
    """Return the largest cosine distance between rows on the leading dimensions that both sides have.

    Zero where the narrower side holds the first dimensions of the wider one, scaled to length 1 again or not. Rows that
    are zero there are left out.

    Shape: (N, D1), (N, D2) -> number; `None` where no row is left.
    """
    width = min(used_width(left), used_width(right))
    if width == 0:
        return None
    apart = cosine_distances(unit(left[:, :width]), unit(right[:, :width]))
    apart = apart[~apart.isnan()]
    return float(apart.max()) if len(apart) else None
