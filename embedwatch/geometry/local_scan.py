"""The local scan: whether any neighbourhood holds more, or fewer, rows of one side than its share."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.permutation import family_p_value

__all__ = ["LocalScan", "local_scan"]

NEAR, WIDE = 30, 60
"""Neighbours that are counted: for new topics, and for lost ones."""
TOP_PART = 100
"""One in so many rows makes the mean that breaks ties, and that of lost topics."""
TIE_WEIGHT = 1e-3
CHUNK = 25
"""Permutations whose counts are held at a time."""


class LocalScan(NamedTuple):
    """What the scan found.

    Args:
        p_value: of new topics, lost topics and other mixtures together.
        crowded: z of each row's neighbourhood: how far the right side outnumbers its share there, (N,).
    """

    p_value: float
    crowded: Tensor


def local_scan(neighbours: Tensor, blocks: Tensor, labels: Tensor, *, factor: float = 1.0) -> LocalScan:
    """Compare two sides in each neighbourhood: what a few rows in a place of their own do not hide from.

    With π the share of the right side and n_k the rows of it among the k nearest of a row,
    `z = (n_k - k π) / √(k π (1 - π))`. Three statistics are permuted by blocks: the largest z at k = 30 (a new topic),
    minus the mean of the lowest hundredth at k = 60 (a lost one), the mean of z² at k = 60 (another mixture). Use rows
    as they are, without repeats: a whitening fitted on some of them ruins it, and repeats are neighbourhoods.

    Args:
        neighbours: the nearest other rows of each, nearest first, (N, k ≥ 1).
        blocks: block of each row, (N,).
        labels: which blocks are on the right, the truth first, (1 + P, blocks).
        factor: shortens what was observed, see `seam`.

    References:
        Schilling 1986, "Multivariate two-sample tests based on nearest neighbors"; Henze 1988; Kulldorff 1997, "A
        spatial scan statistic", for the largest.
    """
    near, wide = (neighbours[:, : min(size, neighbours.shape[1])] for size in (NEAR, WIDE))
    top = max(1, len(blocks) // TOP_PART)
    found: list[Tensor] = []
    crowded = torch.zeros(0)
    for part in labels[:, blocks].float().split(CHUNK):  # (C, N)
        crowd, wider = _excess(part, near), _excess(part, wide)
        crowded = crowd[0] if not found else crowded
        largest = crowd.amax(1) + TIE_WEIGHT * crowd.topk(top, dim=1).values.mean(1)
        emptiest = -wider.topk(top, dim=1, largest=False).values.mean(1)
        found.append(torch.stack([largest, emptiest, wider.square().mean(1)], 1))
    statistics = torch.cat(found).double()
    typical = statistics[1:].mean(0)
    statistics[0] = typical + factor * (statistics[0] - typical)
    return LocalScan(family_p_value(statistics), crowded)


def _excess(right: Tensor, neighbours: Tensor) -> Tensor:
    """Return z of each neighbourhood. Shape: (C, N) of zeros and ones, (N, k) -> (C, N)."""
    size = neighbours.shape[1]
    share = right.mean(1, keepdim=True)
    counts = right[:, neighbours].sum(2)
    return (counts - size * share) / (size * share * (1 - share)).clamp(min=math.ulp(1.0)).sqrt()
