"""Exact nearest neighbours inside a sample."""

from __future__ import annotations

from typing import NamedTuple

import faiss
import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["Neighbours", "nearest_neighbours"]

CHUNK = 256  # rows whose distances are taken again at a time


class Neighbours(NamedTuple):
    """The k nearest other rows of each row, nearest first: distances (N, k) float64 and positions (N, k) int64."""

    distances: Tensor
    rows: Tensor


def nearest_neighbours(rows: Tensor, k: int) -> Neighbours:
    """Return the k nearest other rows of each row by Euclidean distance, exact search.

    FAISS computes `‖x‖² + ‖y‖² - 2 x·y`, which loses small distances to rounding (near 3·10⁻⁴ for unit rows); the
    distances of the neighbours found are therefore taken again from the differences, in float64, and sorted by them.

    Shape: (N, D) -> (N, k'), k' = min(k, N - 1).
    """
    if k < 1:
        raise UsageError(f"`k` must be at least 1, got {k}; ask for one neighbour or more")
    count = len(rows)
    found = min(k, count - 1)
    if found < 1:
        return Neighbours(torch.zeros(count, 0, dtype=torch.float64), torch.zeros(count, 0, dtype=torch.int64))
    matrix = np.ascontiguousarray(rows.detach().cpu().float().numpy())
    index = faiss.IndexFlatL2(matrix.shape[1])
    index.add(matrix)
    _, nearest = index.search(matrix, found + 1)
    others = _without_self(torch.from_numpy(nearest), found)  # (N, k')
    wide = rows.detach().cpu()
    distances = torch.cat([_distances(wide, start, others[start : start + CHUNK]) for start in range(0, count, CHUNK)])
    order = torch.argsort(distances, dim=1, stable=True)
    return Neighbours(distances.gather(1, order), others.gather(1, order))


def _without_self(nearest: Tensor, found: int) -> Tensor:
    """Drop each row from its own list; where twins pushed it out, drop the last instead. (N, k' + 1) -> (N, k')."""
    own = nearest == torch.arange(len(nearest))[:, None]
    own[~own.any(1), -1] = True
    return nearest[~own].view(len(nearest), found)


def _distances(rows: Tensor, start: int, others: Tensor) -> Tensor:
    here = rows[start : start + len(others)].double()  # (C, D)
    distances: Tensor = torch.linalg.vector_norm(rows[others].double() - here[:, None, :], dim=2)  # (C, k')
    return distances
