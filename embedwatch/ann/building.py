"""Building an index from vectors that come in parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Ids, Matrix
from embedwatch.ann.facts import IndexRefusedError
from embedwatch.ann.structure import peel

__all__ = ["Building"]

METRICS = {"inner product": faiss.METRIC_INNER_PRODUCT, "euclidean": faiss.METRIC_L2}


class Building:
    """An index that grows.

    Args:
        index: trained.

    Example:
        >>> rows = np.eye(4, dtype=np.float32)
        >>> building = Building.create("Flat", 4, "inner product", rows, own_ids=True)
        >>> building.add(rows, np.array([9, 8, 7, 6]))
        >>> building.rows, building.kind
        (4, 'IDMap2,Flat')
    """

    def __init__(self, index: Any) -> None:
        self.index = index
        layers = peel(self.index)
        self.kind = layers.kind
        self._takes_ids = (
            bool(layers.maps)
            or isinstance(self.index, faiss.IndexIVF)
            or (isinstance(self.index, faiss.IndexPreTransform) and isinstance(layers.core, faiss.IndexIVF))
        )

    @classmethod
    def create(
        cls,
        recipe: str,
        dimension: int,
        metric: str,
        rows: Matrix,
        *,
        own_ids: bool,
        settings: Mapping[str, float] | None = None,
    ) -> Building:
        """Make an empty index and train it on these rows.

        Args:
            recipe: for `faiss.index_factory`, without an id map.
            dimension: of the vectors.
            metric: `inner product` or `euclidean`.
            rows: to train on.
            own_ids: whether vectors come with ids that are not 0, 1, 2, …: where the kind keeps none, an id map is put
                around it.
            settings: how hard it searches: `nprobe`, `efSearch`, `k_factor`; what it does not have is left out.

        Raises:
            IndexRefusedError: where FAISS knows no such recipe.
        """
        if metric not in METRICS:
            raise IndexRefusedError(f"compares by {metric}, which no index is built for; build it with FAISS")
        keeps_ids = "IVF" in recipe and "Refine" not in recipe and "RFlat" not in recipe
        text = recipe if keeps_ids or not own_ids else f"IDMap2,{recipe}"
        try:
            index = faiss.index_factory(dimension, text, METRICS[metric])
            index.train(np.ascontiguousarray(rows))
        except RuntimeError as error:
            reason = " ".join(str(error).split()).rpartition(": ")[2]
            raise IndexRefusedError(
                f"cannot be built as {text!r} for {dimension} dimensions ({reason[:120]}); name another with `--kind`"
            ) from None
        _set(index, settings or {})
        return cls(index)

    @property
    def rows(self) -> int:
        """Vectors that it holds."""
        return int(self.index.ntotal)

    @property
    def dimension(self) -> int:
        """Of its vectors."""
        return int(self.index.d)

    def add(self, rows: Matrix, ids: Ids) -> None:
        """Add vectors with their ids; these are left out where it counts by itself."""
        rows = np.ascontiguousarray(rows, np.float32)
        if self._takes_ids:
            self.index.add_with_ids(rows, np.ascontiguousarray(ids, np.int64))
        else:
            self.index.add(rows)


def _set(index: Any, settings: Mapping[str, float]) -> None:
    """Let an index search as hard as another one did."""
    while True:
        if "k_factor" in settings and isinstance(index, faiss.IndexRefine):
            index.k_factor = settings["k_factor"]
        if "nprobe" in settings and isinstance(index, faiss.IndexIVF):
            index.nprobe = min(int(settings["nprobe"]), index.nlist)
        if "efSearch" in settings and isinstance(index, faiss.IndexHNSW):
            index.hnsw.efSearch = int(settings["efSearch"])
        inner = getattr(index, "base_index", None) or getattr(index, "index", None)
        if inner is None:
            return
        index = faiss.downcast_index(inner)
