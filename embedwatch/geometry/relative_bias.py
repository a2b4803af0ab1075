"""Positions as a bias on attention scores: from which distance on T5 tells none apart, and how far ALiBi sees."""

from __future__ import annotations

import math

__all__ = ["alibi_reach", "alibi_slopes", "bucket_of", "open_bucket"]

FAINT = 1e-3
"""A weight below this share of that of the query's own place is as good as none."""


def bucket_of(distance: int, *, buckets: int, most: int) -> int:
    """Return the bucket of a distance in one direction: one each for near ones, then wider and wider, the last open.

    Of n buckets n/2 are exact, the others logarithmic up to `most`:
    `n/2 + ⌊ln(d / (n/2)) / ln(most / (n/2)) · n/2⌋`, at most n - 1.

    References: Raffel et al. 2019, "Exploring the limits of transfer learning", section 2.1.
    """
    exact = buckets // 2
    if distance < exact:
        return distance
    return min(exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact)), buckets - 1)


def open_bucket(*, buckets: int, most: int, bidirectional: bool) -> int:
    """Return the distance from which on all share the last bucket, so that the bias tells none of them apart.

    Example:
        >>> [open_bucket(buckets=32, most=128, bidirectional=both) for both in (True, False)]
        [91, 113]
    """
    count = buckets // 2 if bidirectional else buckets
    distance = most
    while distance > 0 and bucket_of(distance - 1, buckets=count, most=most) == count - 1:
        distance -= 1
    return distance


def alibi_slopes(heads: int) -> list[float]:
    """Return the slope of each head: `2^(-8i/H)` for i = 1, …, H, where H is a power of two.

    Otherwise those of the next lower power of two, then every other one of the next higher.

    References: Press et al. 2021, "Train short, test long", section 3 and footnote 7.

    Example:
        >>> alibi_slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2 ** (-4 * i / power) for i in range(1, 2 * power, 2)]
    return slopes + between[: heads - power]


def alibi_reach(slope: float, faint: float = FAINT) -> float:
    """Return the distance at which a head's bias lowers a weight to a share `faint`: `ln(1 / faint) / slope`.

    Example:
        >>> round(alibi_reach(0.5)), round(alibi_reach(1 / 256)), round(alibi_reach(1 / 256, 2**-24))
        (14, 1768, 4259)
    """
    return math.log(1 / faint) / slope
