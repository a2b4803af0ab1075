"""How large a difference is, in units that people can weigh, whatever its p-value."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.blocks import Blocks, Columns
from embedwatch.geometry.spectrum import effective_rank
from embedwatch.geometry.whitening import Whitening

__all__ = ["Effects", "effects"]

TAILS = (0.05, 0.025, 0.01)
"""Shares of the reference beyond the thresholds at which foreign rows are counted."""

CAUTION = 1.0
"""Standard errors that are taken off the share of foreign rows: without, healthy rows would have some by chance."""

ROUNDING = 1e-12
"""A variance that is at most this share of the mean square is rounding of float32."""

ORIGIN = 1e-6
"""A mean that is shorter than this share of the rows has no direction."""


class Effects(NamedTuple):
    """Sizes of a change from the left to the right.

    Args:
        foreign: share of rows on the right that the left cannot explain, at least.
        centroid_cosine: cosine between the two means.
        centroid_distance: distance of the means in standard deviations, the noise of both taken off.
        variance: total variance on the right over that on the left.
        rank: effective rank over effective rank, in the directions of the reference.
        norm: geometric mean of norms over that on the left.
    """

    foreign: float
    centroid_cosine: float | None
    centroid_distance: float
    variance: float | None
    rank: float | None
    norm: float


def effects(left: Blocks, right: Blocks, by: Whitening) -> Effects | None:
    """Return how far apart two sides are; `None` where one has no block.

    The share of foreign rows rests on the mixture `F_R = (1 - π) F_L + π G`: wherever a threshold leaves the share S
    beyond it, `π ≥ (S_R - S_L) / (1 - S_L)`. Three thresholds in the tail of the left side are tried, of q and of m;
    what the best leaves after one standard error is told. The distance of the means is unbiased,
    `‖Δμ‖² - v_L / n_L - v_R / n_R` with v the variance between blocks (Bai & Saranadasa 1996; Chen & Qin 2010), over
    the total variance.
    """
    if not len(left.keys) or not len(right.keys):
        return None
    columns = Columns(by.alive)
    lam = by.variances[: by.alive]
    means = [side.sums.sum(0) / side.rows.sum() for side in (left, right)]
    firsts = [mean[columns.first] for mean in means]
    spreads = [lam * _variance(mean[columns.first], mean[columns.second]) for mean in means]
    before, after = (float(spread.sum()) for spread in spreads)
    noise = sum(_noise(side, columns, lam) for side in (left, right))
    distance = float((lam * (firsts[1] - firsts[0]).square()).sum()) - noise
    ranks = [effective_rank(spread) for spread in spreads]
    return Effects(
        foreign=max(_foreign(left, right, histogram) for histogram in (columns.tails, columns.half_tails)),
        centroid_cosine=_cosine(_centroid(firsts[0], by), _centroid(firsts[1], by), by),
        centroid_distance=(max(0.0, distance) / before) ** 0.5 if before > 0 else 0.0,
        variance=after / before if before > 0 else None,
        rank=None if ranks[0] is None or ranks[1] is None else ranks[1] / ranks[0],
        norm=float((means[1][2] - means[0][2]).exp()),
    )


def _variance(first: Tensor, second: Tensor) -> Tensor:
    """Return variances from the means of u and u²; what is below rounding is none."""
    variance = second - first.square()
    return torch.where(variance > ROUNDING * second, variance, 0.0)


def _noise(side: Blocks, columns: Columns, lam: Tensor) -> float:
    """Return the expected square by which a side's mean misses its own, from how its blocks differ."""
    count = len(side.keys)
    if count < 2:
        return 0.0
    means = side.sums[:, columns.first] / side.rows[:, None]
    return float((lam * means.var(0)).sum()) / count


def _centroid(first: Tensor, by: Whitening) -> Tensor:
    return by.mean + by.basis[:, : by.alive] @ (by.variances[: by.alive].sqrt() * first)


def _cosine(left: Tensor, right: Tensor, by: Whitening) -> float | None:
    """Return the cosine of two centroids; `None` where one is at the origin but for rounding."""
    lengths = float(left.norm()), float(right.norm())
    least = ORIGIN * (float(by.mean.norm()) + float(by.variances.sum()) ** 0.5)
    return None if min(lengths) <= least else max(-1.0, min(1.0, float(left @ right) / (lengths[0] * lengths[1])))


def _foreign(left: Blocks, right: Blocks, histogram: slice) -> float:
    """Return the largest share less its error over the thresholds of one histogram, or 0."""
    beyond = [side.sums[:, histogram].flip(1).cumsum(1).flip(1) for side in (left, right)]
    shares = [tails.sum(0) / tails[:, 0].sum() for tails in beyond]
    best = 0.0
    for share in TAILS:
        place = int((shares[0] > share).sum().clamp(max=len(shares[0]) - 1))  # the first edge with no more beyond it
        before, after = float(shares[0][place]), float(shares[1][place])
        if before == 1:
            continue
        spread = [
            (tails[:, place] / side.rows).var(correction=0) / len(side.keys)
            for tails, side in zip(beyond, (left, right), strict=True)
        ]
        error = float(torch.stack(spread).sum().sqrt())
        best = max(best, (after - before - CAUTION * error) / (1 - before))
    return best
