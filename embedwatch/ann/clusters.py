"""K-means, for naming the regions of a space."""

from __future__ import annotations

import faiss
import numpy as np
import torch
from torch import Tensor

from embedwatch.core.errors import UsageError

__all__ = ["cluster_centres"]

ROUNDS = 20
SAFE = 1e15
"""Beyond this size, or below its inverse, rows are scaled first: their squares may leave the range of float32."""
MOST_PER_CELL = 256
"""Rows of each cell that take part; more of them move no centre."""


def cluster_centres(rows: Tensor, count: int, *, seed: int, least: int = 1) -> Tensor:
    """Return the centres of k-means (Lloyd 1982), the same for the same rows and seed.

    Args:
        rows: (N, D).
        count: of centres.
        seed: of the rows from which it begins.
        least: centres that are nearest to fewer rows are left out: that of a single row is the row itself.

    Shape: (N, D) -> (at most min(count, N), D) float32.
    """
    if count < 1:
        raise UsageError(f"`count` must be at least 1, got {count}; ask for one centre or more")
    plain = rows.detach().cpu()
    largest = float(plain.abs().max()) if plain.numel() else 0.0
    scale = (
        largest if largest > SAFE or 0 < largest < 1 / SAFE else 1.0
    )  # faiss ends the process where squares overflow
    matrix = np.ascontiguousarray((plain / scale if scale != 1 else plain).float().numpy())
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
    centres = torch.from_numpy(np.array(means.centroids, copy=True))
    if least > 1:
        nearest = torch.from_numpy(means.index.search(matrix, 1)[1][:, 0])
        centres = centres[nearest.bincount(minlength=found) >= least]
    return centres * scale if scale != 1 else centres
