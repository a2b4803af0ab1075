"""A copy of an index for another model, and how it is compared with what it should be before it gets its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embedwatch.align.aligner import Aligner
from embedwatch.align.linear_maps import mapped
from embedwatch.ann.indexes import IndexFile
from embedwatch.core.errors import InputError

if TYPE_CHECKING:
    from embedwatch.ann.arrays import Ids, Matrix

__all__ = [
    "CHECKED", "EXACT", "NEIGHBOURS", "QUERIES", "ROUNDED", "SAME_ANSWERS", "SEED", "IndexCopy", "Mode", "answers",
    "mapped_recall", "nearness", "positions_of", "require", "same_ids", "shared",
]  # fmt: skip

Mode = Literal["bake", "rotate", "migrate"]
CHECKED = 1000
"""Vectors, chosen at random, that are looked at again once the new file is open."""
QUERIES = 200
NEIGHBOURS = 10
SEED = 20
SAME_ANSWERS = 0.99
"""Share of answers that stays: rounding swaps neighbours that are equally near."""
EXACT, ROUNDED = 1e-4, 0.02
"""Relative difference of a vector that comes back, for kinds that keep vectors, and for those that round them."""


@dataclass(frozen=True)
class IndexCopy:
    """A new index, and what was seen of it after it was opened again.

    Args:
        mode: `bake`, `rotate` or `migrate`.
        before, after: kinds of the old index and the new one.
        rows: vectors in both.
        dimension_before, dimension_after: of their queries.
        checked: vectors that were read back from the new file, with their ids.
        cosine_mean, cosine_least: of these beside what they should be; `None` where none were mapped.
        same_answers: share of the 10 nearest that both indexes answer alike; `None` where that is not to be expected.
        recall: share of the true 10 nearest, among the mapped vectors, that the new index finds; `None` where nothing
            was mapped.
        loss_mean, loss_least: cosine of what the old index gives back with the originals, where they were given.
        notes: what its owner must know.
    """

    mode: Mode
    before: str
    after: str
    rows: int
    dimension_before: int
    dimension_after: int
    checked: int
    cosine_mean: float | None = None
    cosine_least: float | None = None
    same_answers: float | None = None
    recall: float | None = None
    loss_mean: float | None = None
    loss_least: float | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "notes": list(self.notes)}


def answers(index: IndexFile, queries: Matrix, k: int) -> Ids:
    """Return the ids that an index answers. Shape: (Q, D) -> (Q, k)."""
    return index.search(queries, k)[1] if k else np.zeros((len(queries), 0), np.int64)


def shared(some: Ids, others: Ids) -> float | None:
    """Return the mean share of answers that two indexes have in common."""
    if not some.size:
        return None
    pairs = zip(some.tolist(), others.tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(set(b)) for a, b in pairs]))


def nearness(got: Matrix, expected: Matrix) -> tuple[float | None, float | None, float]:
    """Return mean and least cosine, and the largest relative difference, of vectors beside what they should be."""
    if not len(got):
        return None, None, 0.0
    wide, other = got.astype(np.float64), expected.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(other, axis=1), 1e-30)
    cosines = (wide * other).sum(1) / np.maximum(np.linalg.norm(wide, axis=1) * lengths, 1e-30)
    worst = float((np.linalg.norm(wide - other, axis=1) / lengths).max())
    return float(cosines.mean()), float(cosines.min()), worst


def same_ids(before: IndexFile, after: IndexFile) -> None:
    """Refuse a copy with any other id."""
    rows = before.facts.rows
    require(after.facts.rows == rows, f"{after.facts.rows:,} vectors, the old one {rows:,}")
    same = np.array_equal(np.sort(before.ids(0, rows)), np.sort(after.ids(0, rows)))
    require(same, "other ids than the old one")


def positions_of(before: IndexFile, after: IndexFile, positions: Ids) -> Ids:
    """Return where vectors lie in the copy. Of several with one id, the n-th there is the n-th here."""
    rows = before.facts.rows
    old, new = (np.argsort(index.ids(0, rows), kind="stable") for index in (before, after))
    rank = np.empty(rows, np.int64)
    rank[old] = np.arange(rows)
    return new[rank[positions]].astype(np.int64)


def mapped_recall(aligner: Aligner, before: IndexFile, after: IndexFile, asked: Ids) -> float | None:
    """Return the share of the true nearest among the mapped vectors that the new index finds, each row left out."""
    rows = before.facts.rows
    k = min(NEIGHBOURS, rows - 1)
    if k < 1:
        return None
    queries = mapped(aligner, before.rows_at(asked))
    _, found = after.search(queries, k + 1)
    nearest: Callable[[Matrix], Any] = _distances(queries, after.facts.metric)
    best = np.full((len(asked), k), np.inf)
    ids = np.full((len(asked), k), -1, np.int64)
    step = 8192
    for start in range(0, rows, step):
        count = min(step, rows - start)
        far = nearest(mapped(aligner, before.rows(start, count)))  # (Q, n)
        inside = (asked >= start) & (asked < start + count)
        far[np.flatnonzero(inside), asked[inside] - start] = np.inf
        joined = np.concatenate([best, far], 1)
        numbers = np.concatenate([ids, np.broadcast_to(before.ids(start, count), far.shape)], 1)
        order = np.argsort(joined, axis=1, kind="stable")[:, :k]
        best, ids = np.take_along_axis(joined, order, 1), np.take_along_axis(numbers, order, 1)
    own = before.ids_at(asked).tolist()
    shares = [
        len({number for number in answers if number != each} & set(true)) / k
        for answers, true, each in zip(found.tolist(), ids.tolist(), own, strict=True)
    ]
    return float(np.mean(shares))


def _distances(queries: Matrix, metric: str) -> Callable[[Matrix], Any]:
    """Return what gives distances of rows, smaller is nearer. (n, D) -> (Q, n)."""
    if metric == "inner product":
        return lambda rows: -(queries @ rows.T)
    return lambda rows: (rows**2).sum(1)[None] - 2 * queries @ rows.T


def require(holds: bool, what: str) -> None:  # noqa: FBT001
    """Refuse a copy that is not what it should be.

    Raises:
        InputError: saying what it has instead.
    """
    if not holds:
        raise InputError(
            f"the new index must hold what was written, read again it has {what}; nothing was kept, is the disk full?"
        )
