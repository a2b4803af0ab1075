"""An index that a program holds in memory, looked at in the way in which files are."""

from __future__ import annotations

from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Ids, Matrix
from embedwatch.ann.facts import IndexRefusedError
from embedwatch.ann.recall import sampled_recall
from embedwatch.ann.vectors import StoredVectors, describe
from embedwatch.core.errors import InputError, UsageError

__all__ = ["LiveIndex"]


class LiveIndex:
    """The same questions as to an index file, to one in this process. It is read, never changed.

    Whoever adds to it or removes from it meanwhile must not: FAISS knows no such thing as a reader.

    Args:
        index: any index of vectors.
        label: what people call it.

    Raises:
        UsageError: if it is none.
        InputError: if its vectors cannot be had.
    """

    def __init__(self, index: Any, label: str = "index") -> None:
        if not isinstance(index, faiss.Index):
            raise UsageError(
                f"`index` must be a FAISS index of vectors or a path, got {type(index).__name__}; give one"
            )
        self.label = label
        try:
            self._vectors = StoredVectors(index)
        except IndexRefusedError as error:
            raise InputError(f"{label} {error}") from None
        self._index = index
        self.facts = describe(self._vectors)

    def ids(self, start: int, count: int) -> Ids:
        """Return the ids of `count` vectors from this position on. Shape: (count,)."""
        return self._vectors.ids(np.arange(start, start + count, dtype=np.int64))

    def rows_at(self, positions: Ids) -> Matrix:
        """Return the vectors at these positions. Shape: (n,) -> (n, D)."""
        return self._vectors.take(positions)

    def coded(self, rows: Matrix) -> Matrix:
        """Return vectors as the index would give them back, had they been added. Shape: (n, D) -> (n, D)."""
        return self._vectors.coded(rows)

    def recall(self, queries: Matrix | None, *, k: int, count: int, seed: int) -> dict[str, Any]:
        """Return what `embedwatch.ann.recall.sampled_recall` finds, as plain values."""
        try:
            found = sampled_recall(self._index, queries, k=k, count=count, seed=seed, vectors=self._vectors)
        except IndexRefusedError as error:
            raise InputError(f"{self.label} {error}") from None
        return found.to_json()
