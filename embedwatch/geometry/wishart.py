"""What a covariance would look like from fewer rows: drawn from the Wishart distribution."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["drawn_covariance"]


def drawn_covariance(values: Tensor, rows: int, *, seed: int) -> Tensor:
    """Return the sample covariance of so many Gaussian rows whose covariance is diagonal with these values.

    Bartlett 1933: `Λ^(1/2) L Lᵀ Λ^(1/2) / (n - 1)` with L lower triangular, roots of χ² on its diagonal; so the cost
    does not depend on n. Where n - 1 < K, L has n - 1 columns.

    Shape: (K,) -> (K, K) float64, the same for the same seed.

    Example:
        >>> float(drawn_covariance(torch.ones(1, dtype=torch.float64), 10**9, seed=0)) - 1 < 1e-3
        True
    """
    generator = np.random.default_rng(seed)
    free, width = max(1, rows - 1), len(values)
    lower = torch.from_numpy(generator.standard_normal((width, min(free, width)))).tril(-1)
    freedom = free - np.arange(lower.shape[1], dtype=np.float64)
    diagonal = torch.from_numpy(np.sqrt(generator.chisquare(freedom)))
    lower.diagonal().copy_(diagonal)
    scaled = values.double().clamp(min=0).sqrt()[:, None] * lower / free**0.5  # (K, min(n - 1, K))
    found: Tensor = scaled @ scaled.T
    return found
