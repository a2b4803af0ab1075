"""K-means, for naming the regions of a space."""

from __future__ import annotations

import faiss
import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["cluster_centres"]

ROUNDS = 20
MOST_PER_CELL = 256
"""Rows of each cell that take part; more of them move no centre."""


def cluster_centres(rows: Tensor, count: int, *, seed: int) -> Tensor:
    """Return the centres of k-means (Lloyd 1982), the same for the same rows and seed.

    Shape: (N, D) -> (min(count, N), D) float32.
    """
    if count < 1:
        raise UsageError(f"`count` must be at least 1, got {count}; ask for one centre or more")
    matrix = np.ascontiguousarray(rows.detach().cpu().float().numpy())
    found = min(count, len(matrix))
    if not found:
        return torch.zeros(0, rows.shape[1])
    means = faiss.Kmeans(
        matrix.shape[1],
        found,
        niter=ROUNDS,
        seed=seed,
        min_points_per_centroid=1,
        max_points_per_centroid=MOST_PER_CELL,
        verbose=False,
    )
    means.train(matrix)
    return torch.from_numpy(np.array(means.centroids, copy=True))
