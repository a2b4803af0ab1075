"""Nearest neighbours, clusters and index files: the sole importer of faiss.

The names are imported when first used: the process in which index files are opened needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embedwatch.ann.clusters import cluster_centres
    from embedwatch.ann.search import Neighbours, nearest_neighbours

__all__ = ["Neighbours", "cluster_centres", "nearest_neighbours"]

_HOMES = {
    "Neighbours": "embedwatch.ann.search",
    "cluster_centres": "embedwatch.ann.clusters",
    "nearest_neighbours": "embedwatch.ann.search",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'embedwatch.ann' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
