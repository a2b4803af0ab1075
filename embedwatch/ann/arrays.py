"""Arrays as FAISS takes them, and seeded samples of positions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Ids", "Matrix", "sample_of"]

Matrix = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


def sample_of(count: int, size: int, seed: int = 0) -> Ids:
    """Return positions of a seeded sample, ascending, each once.

    Example:
        >>> sample_of(3, 10).tolist(), len(sample_of(1000, 10))
        ([0, 1, 2], 10)
    """
    if count <= size:
        return np.arange(count, dtype=np.int64)
    return np.sort(np.random.default_rng(seed).choice(count, size, replace=False)).astype(np.int64)
