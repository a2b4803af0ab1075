"""Nearest neighbours and clusters: the sole importer of faiss."""

from embedwatch.ann.clusters import cluster_centres
from embedwatch.ann.search import Neighbours, nearest_neighbours

__all__ = ["Neighbours", "cluster_centres", "nearest_neighbours"]
