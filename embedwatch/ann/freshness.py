"""Whether an index holds what the present model writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from embedwatch.ann.arrays import Ids, Matrix
from embedwatch.ann.facts import IndexFacts

__all__ = ["IndexFreshness", "Searched", "freshness"]

SAME, SAME_CODES = 0.99, 0.95
"""Cosine from which on two vectors are the same. Rounding to bfloat16 keeps 0.9999; another prefix leaves 0.95, another
pooling 0.58. Behind a quantiser a slight difference may choose another code, so that less is asked there."""
WORST = 50


class Searched(Protocol):
    """An index that can be asked: a file or a live one."""

    @property
    def label(self) -> str:
        """What people call it."""

    @property
    def facts(self) -> IndexFacts:
        """What it is made of."""

    def ids(self, start: int, count: int) -> Ids:
        """Return the ids of some positions."""

    def rows_at(self, positions: Ids) -> Matrix:
        """Return the vectors at some positions."""

    def coded(self, rows: Matrix) -> Matrix:
        """Return vectors as the index would give them back."""

    def recall(self, queries: Matrix | None, *, k: int, count: int, seed: int) -> dict[str, Any]:
        """Return its recall."""


@dataclass(frozen=True)
class IndexFreshness:
    """A sample of ids: what lies in the index beside what the present model writes.

    Args:
        sampled: ids that were looked for.
        missing: of these, not in the index.
        stale: of those that are, with another vector.
        median: cosine of what lies there with what should, in the middle of the sample; `None` without one.
        worst: id and cosine of those that differ most, the worst first.
    """

    sampled: int
    missing: int
    stale: int
    median: float | None
    worst: tuple[tuple[int, float], ...] = ()

    @property
    def found(self) -> int:
        """Ids that lie in the index."""
        return self.sampled - self.missing


def freshness(index: Searched, ids: Ids, rows: Matrix) -> IndexFreshness:
    """Compare vectors of the present model with those of the same ids in an index.

    Vectors that the model writes are first brought through the codes of the index, so that what its quantiser loses is
    no difference; then cosine decides. Of several vectors with one id the nearest counts.

    Args:
        index: file or live.
        ids: (n,) of the sample.
        rows: (n, D) what the present model writes for them.
    """
    stored = index.ids(0, index.facts.rows)
    order = np.argsort(stored, kind="stable")
    left, right = np.searchsorted(stored[order], ids), np.searchsorted(stored[order], ids, "right")
    there = right > left
    wanted = index.coded(rows[there]) if there.any() else rows[:0]
    cosines = np.full(int(there.sum()), -1.0)
    for copy in range(int((right - left).max(initial=0))):
        has = (right - left)[there] > copy
        at = order[left[there][has] + copy]
        cosines[has] = np.maximum(cosines[has], _cosines(index.rows_at(at.astype(np.int64)), wanted[has]))
    stale = cosines < (SAME_CODES if index.facts.lossy else SAME)
    worst = np.argsort(cosines)[:WORST]
    named = tuple((int(ids[there][at]), float(cosines[at])) for at in worst if stale[at])
    median = float(np.median(cosines)) if len(cosines) else None
    return IndexFreshness(len(ids), int((~there).sum()), int(stale.sum()), median, named)


def _cosines(some: Matrix, others: Matrix) -> Any:
    """Return the cosine of each row with its partner, 0 where one has no direction. (n, D), (n, D) -> (n,)."""
    wide, other = some.astype(np.float64), others.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1) * np.linalg.norm(other, axis=1)
    return np.divide((wide * other).sum(1), lengths, out=np.zeros(len(wide)), where=lengths > 0)
