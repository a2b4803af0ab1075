"""Nearest neighbours and clusters: the sole importer of faiss."""

from embedwatch.ann.search import Neighbours, nearest_neighbours

__all__ = ["Neighbours", "nearest_neighbours"]
