"""How well one space serves another as the gallery grows: measured on galleries that fit, derived for larger ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["CurvePoint", "Foretold", "foretell", "gallery_sizes", "recall_curve", "unit_centred_rotation"]

LEAST_GALLERY = 50
CHUNK = 512
"""Queries whose cosines with a gallery are formed at a time."""
LEAST_POINTS = 3
FITTED = 4
"""Points at the end of a curve that the line goes through: a curve bends where galleries are small."""
HALF = 0.5
"""Added to the items found and to those missed, so that all and none have a logit."""
WIDTH = 1.96
RANK = 1e-6
"""Directions whose singular value is below this share of the largest are not rotated: nothing was seen of them."""


class CurvePoint(NamedTuple):
    """What is found in galleries of one size.

    Args:
        gallery: rows of each.
        queries: that were asked, each in one gallery.
        own: share of queries that find their own item among the first k.
        best: share that find among the first k others the item which is nearest in the gallery's own space.
    """

    gallery: int
    queries: int
    own: float
    best: float


class Foretold(NamedTuple):
    """A share at a gallery size, with the bounds that hold it 95 times of 100; `derived` where no such gallery was."""

    share: float
    low: float
    high: float
    derived: bool


def gallery_sizes(count: int) -> list[int]:
    """Return the sizes at which a curve is measured: all rows, a half, a quarter, and so on, ascending.

    Example:
        >>> gallery_sizes(500)
        [62, 125, 250, 500]
    """
    sizes = []
    while count >= LEAST_GALLERY:
        sizes.append(count)
        count //= 2
    return sizes[::-1]


def recall_curve(queries: Tensor, gallery: Tensor, k: int, *, seed: int = 0) -> list[CurvePoint]:
    """Return what queries find in galleries of growing size: rows are dealt to as many of one size as there are.

    Native search, the gallery's vectors asked in the gallery, has 1 in both shares.

    Shape: (N, D), (N, D) unit rows, row i of the one beside row i of the other.
    """
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(seed))
    points = []
    for size in gallery_sizes(len(queries)):
        own, best, asked = 0, 0, 0
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            kept = _kept(queries[chosen], gallery[chosen], k)
            own, best, asked = own + kept[0], best + kept[1], asked + size
        points.append(CurvePoint(size, asked, own / asked, best / asked))
    return points


def _kept(queries: Tensor, gallery: Tensor, k: int) -> tuple[int, int]:
    """Return how many queries find their own item, and the natively nearest, among the first k. (G, D), (G, D)."""
    own, best = 0, 0
    for start in range(0, len(queries), CHUNK):
        places = torch.arange(min(CHUNK, len(queries) - start))
        native = gallery[start : start + CHUNK] @ gallery.T  # (C, G)
        native[places, places + start] = -torch.inf
        found = queries[start : start + CHUNK] @ gallery.T
        own += int(((found > found[places, places + start][:, None]).sum(1) < k).sum())
        wanted = found.gather(1, native.argmax(1, keepdim=True))
        found[places, places + start] = -torch.inf
        best += int(((found > wanted).sum(1) < k).sum())
    return own, best


def foretell(sizes: Sequence[int], shares: Sequence[float], queries: Sequence[int], gallery: int) -> Foretold | None:
    """Return a share at some gallery size.

    At a measured size it is what was measured, with the bounds of Wilson 1927. Elsewhere it lies on a line through the
    last four points, of `logit(share)` over `log(size)`, by weighted least squares; its bounds add the uncertainty of
    the line and that of the largest gallery.

    Returns `None` for fewer than three points.

    Example:
        >>> found = foretell([100, 200, 400], [0.9, 0.8, 0.67], [400] * 3, 800)
        >>> round(found.share, 2), found.derived
        (0.49, True)
    """
    if gallery in sizes:
        place = list(sizes).index(gallery)
        return Foretold(shares[place], *_bounds(shares[place], queries[place]), derived=False)
    if len(sizes) < LEAST_POINTS:
        return None
    sizes, shares, queries = sizes[-FITTED:], shares[-FITTED:], queries[-FITTED:]
    known = torch.tensor([[n * p + HALF, n * (1 - p) + HALF] for n, p in zip(queries, shares, strict=True)])
    known = known.double()
    y = (known[:, 0] / known[:, 1]).log()
    weights = 1 / (1 / known).sum(1)  # inverse variance of a logit
    x = torch.tensor(sizes, dtype=torch.float64).log()
    mean = (weights * x).sum() / weights.sum()
    spread = float((weights * (x - mean).square()).sum())
    slope = float((weights * (x - mean) * y).sum()) / spread
    level = float((weights * y).sum() / weights.sum())
    away = math.log(gallery) - float(mean)
    variance = 1 / float(weights.sum()) + away**2 / spread + 1 / float(weights[-1])
    middle, half = level + slope * away, WIDTH * variance**0.5
    share, low, high = (1 / (1 + math.exp(-value)) for value in (middle, middle - half, middle + half))
    return Foretold(share, low, high, derived=gallery > max(sizes))


def _bounds(share: float, queries: int) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    square = WIDTH**2 / queries
    middle = (share + square / 2) / (1 + square)
    half = WIDTH * (share * (1 - share) / queries + square / (4 * queries)) ** 0.5 / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def unit_centred_rotation(left: Tensor, right: Tensor, rows: Tensor) -> Tensor:
    """Return rows of the left space in the right one, by the rotation of unit, centred, unit rows of some pairs.

    `R = U Vᵀ` from `XᵀY = U S Vᵀ` (Schönemann 1966), both sides scaled to length 1, less their means, and scaled again
    (Artetxe, Labaka & Agirre 2018). The mean of the right side is not added: asked of unit rows it would be a bonus of
    each document that no query has a say in.

    Shape: (N, D1), (N, D2), (M, D1) -> (M, D2) unit rows.
    """
    mean = left.mean(0)
    x, y = _unit(left - mean), _unit(right - right.mean(0))
    inner = torch.linalg.svd(x.T @ y, full_matrices=False)
    kept = RANK * inner.S[0] < inner.S
    return _unit(_unit(rows - mean) @ inner.U[:, kept] @ inner.Vh[kept])


def _unit(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    unit: Tensor = rows / norms.clamp(min=torch.finfo(rows.dtype).tiny)
    return unit
