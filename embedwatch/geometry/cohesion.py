"""Cohesion and separation of labelled groups."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["GroupCosines", "group_cosines", "group_sums", "remove_mean", "remove_top", "silhouette"]


RESOLUTION = 1e-5
"""Unit rows in float32 are not told apart below this distance."""


class GroupCosines(NamedTuple):
    """Mean cosine inside groups and between them, and the mean cosine inside each group."""

    inside: float | None
    between: float | None
    by_group: Tensor

    @property
    def margin(self) -> float | None:
        """Inside minus between."""
        return None if self.inside is None or self.between is None else self.inside - self.between


def group_sums(unit: Tensor, labels: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return number and sum of the unit rows of each group.

    Shape: (N, D) and (N,) in [0, groups) -> (groups,) int64, (groups, D) float64.
    """
    counts = torch.bincount(labels, minlength=groups)
    sums = torch.zeros(groups, unit.shape[1], dtype=torch.float64, device=unit.device)
    return counts, sums.index_add_(0, labels, unit.double())


def group_cosines(counts: Tensor, sums: Tensor) -> GroupCosines:
    """Return cohesion and separation from the number n_g and the sum S_g of the unit rows of each group.

    Inside a group the mean cosine is `(‖S_g‖² - n_g) / (n_g (n_g - 1))`, averaged over groups of two rows or more,
    each group with the same weight, so that large groups do not drown small ones. Between groups it is
    `(‖Σ S_g‖² - Σ ‖S_g‖²) / (n² - Σ n_g²)` over all pairs of rows from different groups. Exact, without pairs.

    Shape: (G,) and (G, D) -> numbers in [-1, 1], and (G,) with NaN for groups of one row.
    """
    sizes, wide = counts.double(), sums.double()
    squares = wide.square().sum(1)  # (G,)
    by_group = torch.where(counts > 1, (squares - sizes) / (sizes * (sizes - 1)).clamp(min=1), torch.nan)
    inside = by_group[counts > 1]
    pairs = float(sizes.sum().square() - sizes.square().sum())
    between = float((wide.sum(0).square().sum() - squares.sum()) / pairs) if pairs > 0 else None
    return GroupCosines(float(inside.mean()) if len(inside) else None, between, by_group)


def remove_mean(unit: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows without their common mean, scaled to norm 1 again, and which rows these are.

    A row that was the mean, to the precision of float32, has no direction left and is dropped.

    Shape: (N, D) -> (M, D), (N,) bool with M true.
    """
    rest = unit - unit.mean(0)
    norms = rest.norm(dim=1)
    kept = norms > RESOLUTION
    return rest[kept] / norms[kept, None], kept


def remove_top(unit: Tensor, directions: int) -> tuple[Tensor, Tensor]:
    """Return the rows without their mean and widest directions, scaled to norm 1, and which rows these are.

    "All but the top" (Mu & Viswanath 2018): a few directions that all words share say how frequent a word is rather
    than what it means. The directions are the principal ones of these very rows.

    Shape: (N, D) -> (M, D), (N,) bool with M true.
    """
    rest = (unit - unit.mean(0)).double()
    directions = min(directions, *rest.shape)
    if directions > 0:
        widest = _widest(rest, directions)
        rest = rest - (rest @ widest) @ widest.T
    norms = rest.norm(dim=1)
    kept = norms > RESOLUTION
    return (rest[kept] / norms[kept, None]).to(unit.dtype), kept


def _widest(rows: Tensor, directions: int) -> Tensor:
    """Return orthonormal principal directions of rows, by the smaller of both products. Shape: (N, D) -> (D, k)."""
    if len(rows) >= rows.shape[1]:
        widest: Tensor = torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -directions:]
        return widest
    mixes = torch.linalg.eigh(rows @ rows.T).eigenvectors[:, -directions:]  # (N, k)
    basis: Tensor = torch.linalg.qr(rows.T @ mixes).Q
    return basis


def silhouette(unit: Tensor, labels: Tensor) -> float | None:
    """Return the mean silhouette by cosine distance; `None` unless there are two groups, and fewer than rows.

    References:
        Rousseeuw 1987, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis".
    """
    groups = len(labels.unique())
    if not 2 <= groups < len(labels):
        return None
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(unit.numpy(), labels.numpy(), metric="cosine"))
