"""How many of the true nearest neighbours an index finds: sampled, exact against what it answers, with an interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.arrays import Ids, Matrix, sample_of
from embedwatch.ann.facts import IndexRecall, IndexRefusedError
from embedwatch.ann.intervals import interval
from embedwatch.ann.structure import metric_sign
from embedwatch.ann.vectors import StoredVectors

__all__ = ["nearest", "sampled_recall"]

QUERIES = 200
K = 10
CHUNK = 8192
SLACK = 1e-5
"""Relative difference of distances that counts as a tie: a vector that lies there twice is no miss."""
ROUNDING = 1e-9
"""The same for distances near zero, beside the squared length of the query."""


def nearest(index: Any, queries: Matrix, k: int) -> tuple[Matrix, Ids]:
    """Return distances and ids of what an index answers. Shape: (Q, D) -> (Q, k), (Q, k).

    Raises:
        IndexRefusedError: for queries of another dimension, which FAISS answers with an empty error.
    """
    if queries.ndim != 2 or queries.shape[1] != index.d:
        raise IndexRefusedError(f"takes queries of {index.d} dimensions, got {queries.shape[-1]}; ask with its model")
    if not np.isfinite(queries).all():
        raise IndexRefusedError("was asked for NaN or Inf, which it answers with no id; leave such queries out")
    distances, ids = index.search(np.ascontiguousarray(queries, np.float32), k)
    return distances, ids


def sampled_recall(
    index: Any,
    queries: Matrix | None = None,
    *,
    k: int = K,
    count: int = QUERIES,
    seed: int = 0,
    vectors: StoredVectors | None = None,
) -> IndexRecall:
    """Ask an index, look through all its vectors too, and return the share of the true nearest that it found.

    The truth is among the vectors that it can give back: behind codes these are not those that were added, so that the
    share tells what lists and graph miss, not what the codes lose. It depends on what is asked: queries of your users
    tell more than rows of the index.

    Args:
        index: any index whose vectors can be had, searched as it is set now (`nprobe`, `efSearch`).
        queries: (Q, D); without them, rows of the index are asked for their neighbours.
        k: neighbours a query.
        count: of the queries, where they are rows of the index.
        seed: of their choice.
        vectors: of the index, if they are open already.

    Cost: `rows · count · D` multiplications, in chunks.

    Example:
        >>> rows = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
        >>> index = faiss.index_factory(8, "Flat"); index.add(rows)
        >>> found = sampled_recall(index, count=100)
        >>> found.value, round(found.low, 3), found.high
        (1.0, 0.963, 1.0)
    """
    vectors = StoredVectors(index) if vectors is None else vectors
    own = queries is None
    if own and vectors.dimension != index.d:
        raise IndexRefusedError("maps what it is asked, and its own rows cannot be mapped back; give queries")
    asked = sample_of(vectors.count, count, seed) if own else np.zeros(0, np.int64)
    if queries is None:
        queries = vectors.take(asked) if vectors.count else np.zeros((0, index.d), np.float32)
        finite = np.isfinite(queries).all(1)
        asked, queries = asked[finite], queries[finite]
    most = min(k, vectors.count - own)
    if most < 1 or not len(queries):
        return IndexRecall(None, None, None, len(queries), k, vectors.count, own=own)
    _, answered = nearest(index, queries, most + own)
    found = _found(index, queries, answered, asked if own else None, vectors, most)
    value = float(found.mean())
    low, high = interval(found)
    return IndexRecall(value, low, high, len(queries), most, vectors.count, float(found.min()), own=own)


def _found(index: Any, queries: Matrix, answered: Ids, asked: Ids | None, vectors: StoredVectors, k: int) -> Any:
    """Return the share of the true k nearest among the answers of each query. Shape: (Q,)."""
    sign = metric_sign(index)
    count = len(queries)
    best = np.full((count, k), -np.inf)
    scores = np.full(answered.shape, -np.inf)
    order = np.argsort(answered, axis=None, kind="stable")
    flat = answered.ravel()[order]
    rows_of = np.arange(count)
    within = vectors.as_stored(queries)
    for start in range(0, vectors.count, CHUNK):
        positions = np.arange(start, min(start + CHUNK, vectors.count), dtype=np.int64)
        near = sign * _scores(index, within, vectors.take(positions))  # (Q, n), larger is nearer
        near[~np.isfinite(near)] = -np.inf
        ids = vectors.ids(positions)
        if asked is not None:
            inside = (asked >= start) & (asked < start + len(positions))
            near[rows_of[inside], asked[inside] - start] = -np.inf
        best = -np.sort(-np.concatenate([best, near], 1), axis=1)[:, :k]
        for place in np.flatnonzero(np.isin(ids, flat)):
            left, right = np.searchsorted(flat, ids[place]), np.searchsorted(flat, ids[place], "right")
            for at in order[left:right]:
                query, column = divmod(int(at), answered.shape[1])
                scores[query, column] = max(scores[query, column], near[query, place])
    limit = np.nan_to_num(best[:, -1:], neginf=0)
    slack = SLACK * np.abs(limit) + ROUNDING * (queries.astype(np.float64) ** 2).sum(1, keepdims=True)
    hits = (scores >= best[:, -1:] - slack) & np.isfinite(scores)
    shares: Any = np.minimum(hits.sum(1), k) / k
    return shares


def _scores(index: Any, queries: Matrix, rows: Matrix) -> Any:
    """Return the distances or products of all pairs, as the index defines them. Shape: (Q, n)."""
    if index.metric_type == faiss.METRIC_INNER_PRODUCT:
        return queries.astype(np.float64) @ rows.T.astype(np.float64)
    if index.metric_type == faiss.METRIC_L2:
        with np.errstate(over="ignore", invalid="ignore"):
            wide, other = queries.astype(np.float64), rows.astype(np.float64)
            return (wide**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * wide @ other.T
    raise IndexRefusedError(
        f"compares by metric {index.metric_type}, for which recall is not measured; use cosine or L2"
    )
