"""Repetition in sequences of tokens: n-grams that come again, loops that a text ends in, stretches that are alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Loop", "alike_stretches", "distinct_share", "find_loop", "repeated_share"]

LEAST_REPEATS = 3
"""What comes three times in a row is a loop; people say things twice."""
LEAST_TOKENS = 12
"""A loop takes at least so many tokens: rows of dots and laughter are shorter."""


@dataclass(frozen=True)
class Loop:
    """A stretch at the end of a text that repeats itself.

    Args:
        period: tokens after which it comes again.
        length: tokens that it takes in all.
    """

    period: int
    length: int


def repeated_share(ids: Sequence[int], n: int) -> float | None:
    """Return the share of n-grams that came before: rep-n, `1 - |different n-grams| / |n-grams|`.

    Range: [0, 1). `None` for texts of fewer than n tokens.
    References: Welleck et al. 2019, "Neural text generation with unlikelihood training", https://arxiv.org/abs/1908.04319,
    section 6.1 (seq-rep-n).

    Example:
        >>> repeated_share([1, 2, 3, 1, 2, 3], 2)  # 12 23 31 12 23
        0.4
    """
    grams = _grams(ids, n)
    return 1 - len(set(grams)) / len(grams) if grams else None


def distinct_share(texts: Sequence[Sequence[int]], n: int) -> float | None:
    """Return the share of different n-grams among all of several texts: distinct-n.

    Range: (0, 1]; it falls with the number of tokens, so only equally long texts compare. `None` without n-grams.
    References: Li et al. 2016, "A diversity-promoting objective function for neural conversation models",
    https://arxiv.org/abs/1510.03055, section 5.

    Example:
        >>> distinct_share([[1, 2], [1, 2], [3, 4]], 1)
        0.6666666666666666
    """
    grams = [gram for ids in texts for gram in _grams(ids, n)]
    return len(set(grams)) / len(grams) if grams else None


def find_loop(ids: Sequence[int]) -> Loop | None:
    """Return the loop that a text ends in: the shortest period whose repetition, cut off anywhere, makes its end.

    It must come 3 times at least and take 12 tokens. A text that left its loop has none; rep-n shows that.

    Example:
        >>> find_loop([9, 8] + [1, 2, 3] * 5 + [1])
        Loop(period=3, length=16)
        >>> find_loop(list(range(40))) is None
        True
    """
    size = len(ids)
    for period in range(1, size // LEAST_REPEATS + 1):
        same = 0
        while same < size - period and ids[size - 1 - same] == ids[size - 1 - same - period]:
            same += 1
        length = same + period
        if length >= max(LEAST_TOKENS, LEAST_REPEATS * period):
            return Loop(period, length)
    return None


def alike_stretches(ids: Sequence[int], size: int) -> float | None:
    """Return how alike the stretches of a text are: mean cosine of their token counts, over pairs that do not touch.

    Range: [0, 1], 1 where all hold the same tokens. `None` for texts of fewer than three stretches.

    Example:
        >>> alike_stretches([1, 2, 3, 4] * 3, 4), alike_stretches(list(range(12)), 4)
        (1.0, 0.0)
    """
    counts = [Counter(ids[start : start + size]) for start in range(0, len(ids) - size + 1, size)]
    pairs = [(one, two) for place, one in enumerate(counts) for two in counts[place + 2 :]]
    found = [_cosine(one, two) for one, two in pairs]
    return min(1.0, sum(found) / len(found)) if found else None


def _grams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]


def _cosine(one: Counter[int], two: Counter[int]) -> float:
    shared = sum(count * two[token] for token, count in one.items())
    squares = [sum(count * count for count in counts.values()) for counts in (one, two)]
    return shared / math.sqrt(squares[0] * squares[1])
