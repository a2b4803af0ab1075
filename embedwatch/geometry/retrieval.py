"""Retrieval: whether rows of one side find those that they should among the rows of the other.

All similarities are cosines, computed in parts so that the matrix of all pairs never stands in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.norms import SAFE_NORM

__all__ = [
    "Found",
    "csls_rerank",
    "directions",
    "find",
    "hubness",
    "mean_average_precision",
    "nearest",
    "overlap",
    "recall_at",
    "reciprocal_rank_fusion",
]

CHUNK = 512
"""Queries that are compared with the whole gallery at a time."""
NEIGHBOURS = 10
"""k of CSLS, as its paper has it."""
FUSION = 60
"""k of reciprocal rank fusion, as its paper has it."""
ORDER = 1e-13
"""By so much a row is moved away for each that stands before it: more than rounding, less than any difference."""


class Found(NamedTuple):
    """What queries found.

    Args:
        ranks: place of each query's target, 1 for the first; half of those that tie with it stand before it. (Q,)
        nearest: positions of the k nearest rows of the gallery, nearest first. (Q, k)
    """

    ranks: Tensor
    nearest: Tensor


def directions(rows: Tensor) -> Tensor:
    """Return the rows scaled to norm 1, zero rows as zeros; in the type of the rows.

    Rows whose squares leave the range of their type are scaled by their largest entry first. Rows with NaN or Inf hold
    NaN.

    Shape: (N, D) -> (N, D).

    Example:
        >>> directions(torch.tensor([[4.0, 0.0], [0.0, 0.0], [0.0, 4e30]])).tolist()
        [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    """
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    hard = ~((norms > 1 / SAFE_NORM) & (norms < SAFE_NORM))
    found: Tensor = rows / norms.masked_fill(hard, 1.0)[:, None]
    if not bool(hard.any()):
        return found
    wide = rows[hard].double()
    scale = wide.abs().amax(1, keepdim=True)
    wide = wide / torch.where(scale == 0, torch.ones_like(scale), scale)
    lengths = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    found[hard] = (wide / torch.where(lengths == 0, torch.ones_like(lengths), lengths)).to(rows.dtype)
    return found


def find(
    queries: Tensor,
    gallery: Tensor,
    targets: Tensor,
    k: int = NEIGHBOURS,
    less: Tensor | None = None,
    *,
    tie: float = 0.0,
) -> Found:
    """Return the rank of each query's target, and what lies nearest to the query.

    Args:
        queries: (Q, D).
        gallery: (G, D).
        targets: position in the gallery of what each query should find. (Q,) int64
        k: how many neighbours are returned.
        less: taken off twice the cosines, as CSLS does with `hubness`. (G,)
        tie: rows within this of the target's cosine are as near as it.

    NaN: a query with NaN finds nothing: its rank is G.
    """
    width = min(k, len(gallery))
    rows, where = directions(gallery), targets.to(gallery.device)
    ranks, near = [], []
    for start in range(0, len(queries), CHUNK):
        scores = directions(queries[start : start + CHUNK]) @ rows.T  # (C, G)
        if less is not None:
            scores = 2 * scores - less
        own = scores.gather(1, where[start : start + CHUNK, None])
        before, ties = (scores > own + tie).sum(1), ((scores - own).abs() <= tie).sum(1) - 1
        rank = 1 + before + ties / 2
        ranks.append(torch.where(own[:, 0].isnan(), float(len(gallery)), rank))
        near.append(scores.topk(width, dim=1).indices)
    if not ranks:
        return Found(queries.new_zeros(0), torch.zeros(0, width, dtype=torch.int64))
    return Found(torch.cat(ranks), torch.cat(near))


def nearest(queries: Tensor, gallery: Tensor, k: int = NEIGHBOURS, *, without: Tensor | None = None) -> Tensor:
    """Return the positions of the k rows of the gallery that are nearest to each query by cosine, nearest first.

    Of rows that are equally near, in float64 the first come first.

    Args:
        queries: (Q, D).
        gallery: (G, D).
        k: how many; all where the gallery has fewer.
        without: position that each query must not find, itself. (Q,) int64

    Shape: -> (Q, k) int64.
    """
    rows = directions(gallery)
    width = min(k, len(gallery) - (without is not None))
    found = []
    for start in range(0, len(queries), CHUNK):
        scores = directions(queries[start : start + CHUNK]) @ rows.T
        if without is not None:
            scores.scatter_(1, without[start : start + CHUNK, None], -torch.inf)
        if scores.dtype == torch.float64:
            scores -= ORDER * torch.arange(len(rows), device=scores.device)
        found.append(scores.topk(width, dim=1).indices)
    return torch.cat(found) if found else torch.zeros(0, width, dtype=torch.int64)


def recall_at(ranks: Tensor, k: int) -> float:
    """Return the share of queries whose target is among the first k. Range: 0 to 1; NaN without queries.

    Example:
        >>> recall_at(torch.tensor([1.0, 3.0, 1.0, 12.0]), 10)
        0.75
    """
    return float((ranks <= k).double().mean())


def mean_average_precision(ranks: Tensor) -> float:
    """Return the mean of `1 / rank`: average precision where each query has one target (then also MRR).

    Example:
        >>> mean_average_precision(torch.tensor([1.0, 2.0]))
        0.75
    """
    return float((1 / ranks.double()).mean())


def overlap(found: Tensor, wanted: Tensor) -> Tensor:
    """Return for each query the share of wanted positions that were found.

    Shape: (Q, k), (Q, m) -> (Q,).

    Example:
        >>> overlap(torch.tensor([[4, 1, 7]]), torch.tensor([[1, 2, 4]])).tolist()
        [0.6666666865348816]
    """
    return (wanted[:, :, None] == found[:, None, :]).any(2).float().mean(1)


def hubness(rows: Tensor, background: Tensor, k: int = NEIGHBOURS) -> Tensor:
    """Return the mean cosine of each row to the k background rows that are nearest to it.

    `r(y)` of CSLS (Conneau et al. 2018, arXiv 1710.04087): large for a row that lies near many queries. The background
    are other queries, in the space of the rows.

    Shape: (G, D), (M, D) -> (G,).
    """
    others = directions(background)
    width = min(k, len(background))
    parts = [
        (directions(rows[start : start + CHUNK]) @ others.T).topk(width, dim=1).values.mean(1)
        for start in range(0, len(rows), CHUNK)
    ]
    return torch.cat(parts) if parts else rows.new_zeros(0)


def csls_rerank(scores: Tensor, candidates: Tensor, hubs: Tensor) -> tuple[Tensor, Tensor]:
    """Return what a search found in the order of CSLS: `2 cos(x, y) - r(y)`, largest first.

    `r` of the query is the same for all its candidates and changes no order. It is a step after a search, over its
    first hundreds: no index holds it.

    Args:
        scores: cosines of the candidates. (Q, k)
        candidates: their positions. (Q, k) int64
        hubs: `hubness` of every row of the gallery. (G,)

    Returns:
        The new scores and the positions, both (Q, k).

    Example:
        >>> scores, rows = csls_rerank(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]), torch.tensor([0.7, 0.1]))
        >>> rows.tolist()
        [[1, 0]]
    """
    again = 2 * scores - hubs[candidates]
    order = again.argsort(dim=1, descending=True, stable=True)
    return again.gather(1, order), candidates.gather(1, order)


def reciprocal_rank_fusion(lists: Sequence[Tensor], depth: int, k: int = FUSION) -> Tensor:
    """Return the first ids of several result lists joined: each id scores the sum of `1 / (k + rank)` over the lists.

    Cormack, Clarke & Buettcher 2009, "Reciprocal rank fusion outperforms Condorcet". Scores of different indexes are
    never compared, so no map must make them alike. Ties go to the id that stands first in the first list that has it.

    Args:
        lists: ids, best first, at least 0; -1 is no result. Each (Q, k_i) int64
        depth: how many ids are returned.
        k: weight of first places: the larger, the less they count.

    Shape: -> (Q, depth) int64, -1 where there is none.

    Example:
        >>> reciprocal_rank_fusion([torch.tensor([[1, 2, 3]]), torch.tensor([[3, 4, 1]])], 3).tolist()
        [[1, 3, 2]]
    """
    joined = torch.cat(list(lists), 1)  # (Q, K)
    weights = torch.cat([1 / (k + 1 + torch.arange(each.shape[1], dtype=torch.float64)) for each in lists])
    fused = torch.full((len(joined), depth), -1, dtype=torch.int64)
    for place, ids in enumerate(joined.cpu()):
        distinct, owner = torch.unique(ids, return_inverse=True)
        scores = torch.zeros(len(distinct), dtype=torch.float64).index_add_(0, owner, weights)
        first = torch.full((len(distinct),), len(ids)).scatter_reduce_(0, owner, torch.arange(len(ids)), "amin")
        real = distinct >= 0
        order = sorted(range(int(real.sum())), key=lambda at: (-float(scores[real][at]), int(first[real][at])))
        best = distinct[real][order[:depth]]
        fused[place, : len(best)] = best
    return fused
