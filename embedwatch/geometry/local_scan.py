"""The local scan: whether any neighbourhood holds more, or fewer, rows of one side than its share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.permutation import family_p_value

__all__ = ["WIDE", "LocalScan", "local_scan", "nearest_rows"]

NEAR, WIDE = 30, 60
"""Neighbours that are counted: for new topics, and for lost ones."""
TOP_PART = 100
"""One in so many rows makes the mean that breaks ties, and that of lost topics."""
TIE_WEIGHT = 1e-3
LABELLINGS = 128
"""Permutations whose counts are held at a time."""
CHUNK = 512
"""Rows whose distances to all others are held at a time."""


class LocalScan(NamedTuple):
    """What the scan found.

    Args:
        p_value: of new topics, lost topics and other mixtures together.
        crowded: z of each row's neighbourhood: how far the right side outnumbers its share there, (N,).
    """

    p_value: float
    crowded: Tensor


def nearest_rows(rows: Tensor, count: int) -> Tensor:
    """Return the nearest other rows of each by Euclidean distance, nearest first; of few rows, all others.

    Shape: (N, D) -> (N, min(count, N - 1)) int64.
    """
    squares = rows.square().sum(1)
    found = [
        (squares[None] - 2 * rows[start : start + CHUNK] @ rows.T)
        .scatter(1, torch.arange(start, min(start + CHUNK, len(rows)))[:, None], torch.inf)
        .topk(min(count, len(rows) - 1), dim=1, largest=False)
        .indices
        for start in range(0, len(rows), CHUNK)
    ]
    return torch.cat(found)


def local_scan(neighbours: Tensor, blocks: Tensor, labels: Tensor, *, factor: float = 1.0) -> LocalScan:
    """Compare two sides in each neighbourhood: what a few rows in a place of their own do not hide from.

    With π the share of the right side and n_k the rows of it among the k nearest of a row,
    `z = (n_k - k π) / √(k π (1 - π))`. Four statistics are permuted by blocks: the largest z at k = 30 and at k = 60 (a
    new topic), minus the mean of the lowest hundredth at k = 60 (a lost one), the mean of z² at k = 60 (another
    mixture). Use rows as they are, without repeats: a whitening fitted on some of them ruins it, and repeats are
    neighbourhoods.

    Args:
        neighbours: the nearest other rows of each, nearest first, (N, k ≥ 1).
        blocks: block of each row, (N,).
        labels: which blocks are on the right, the truth first, (1 + P, blocks).
        factor: shortens what was observed, see `seam`.

    References:
        Schilling 1986, "Multivariate two-sample tests based on nearest neighbors"; Henze 1988; Kulldorff 1997, "A
        spatial scan statistic", for the largest.
    """
    top = max(1, len(blocks) // TOP_PART)
    rows = torch.bincount(blocks, minlength=labels.shape[1]).float()
    near, wide = (_by_block(neighbours[:, :size], blocks, len(rows)) for size in (NEAR, WIDE))
    found: list[Tensor] = []
    crowded = torch.zeros(0)
    for part in labels.float().split(LABELLINGS):  # (C, blocks)
        share = (part @ rows / len(blocks))[:, None]
        crowd, wider = _excess(part, share, near), _excess(part, share, wide)
        crowded = crowd[0] if not found else crowded
        largest = [z.amax(1) + TIE_WEIGHT * z.topk(top, dim=1).values.mean(1) for z in (crowd, wider)]
        emptiest = -wider.topk(top, dim=1, largest=False).values.mean(1)
        found.append(torch.stack([*largest, emptiest, wider.square().mean(1)], 1))
    statistics = torch.cat(found).double()
    typical = statistics[1:].mean(0)
    statistics[0] = typical + factor * (statistics[0] - typical)
    return LocalScan(family_p_value(statistics), crowded)


def _by_block(neighbours: Tensor, blocks: Tensor, count: int) -> Tensor:
    """Return how many neighbours of each row lie in each block. Shape: (N, k), (N,) -> (blocks, N)."""
    found = torch.zeros(len(neighbours), count)
    return found.scatter_add_(1, blocks[neighbours], torch.ones(neighbours.shape)).T.contiguous()


def _excess(labels: Tensor, share: Tensor, near: Tensor) -> Tensor:
    """Return z of each neighbourhood. Shape: (C, blocks), (C, 1), (blocks, N) -> (C, N)."""
    size = near[:, 0].sum()
    spread = (size * share * (1 - share)).clamp(min=torch.finfo(torch.float32).tiny).sqrt()
    return (labels @ near - size * share) / spread
