"""Cohesion and separation of labelled groups."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["GroupCosines", "group_cosines", "group_sums", "remove_mean"]


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
