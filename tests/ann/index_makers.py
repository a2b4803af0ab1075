"""Small indexes of all kinds on disk, made by FAISS itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np

Matrix = Any
ROWS, DIMENSION = 600, 16


def rows(count: int = ROWS, dimension: int = DIMENSION, seed: int = 0) -> Matrix:
    """Unit rows."""
    found = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def built(recipe: str, x: Matrix, ids: Matrix | None = None, *, metric: int = faiss.METRIC_INNER_PRODUCT) -> Any:
    """Build an index by a recipe of the factory."""
    index = faiss.index_factory(x.shape[1], recipe, metric)
    index.train(x)
    if ids is None:
        index.add(x)
    else:
        index.add_with_ids(x, ids)
    return index


def written(folder: Path, index: Any, name: str = "docs.faiss") -> Path:
    """Write an index."""
    path = folder / name
    faiss.write_index(index, str(path))
    return path
