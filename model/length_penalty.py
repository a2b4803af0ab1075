"""What beam search divides the log-probability of a text by, so that longer ones can compete."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from .errors import ModelError

__all__ = ["LengthPenalty", "power_penalty", "wu_penalty"]

LengthPenalty = Callable[[int], float]
"""From the number of generated tokens to what the log-probability is divided by."""


def wu_penalty(length: int, *, alpha: float) -> float:
    """Return lp(Y) = ((5 + |Y|) / 6)^α, the length penalty of Google's translation system.

    Each token makes a text less probable, so that the most probable one tends to be too short. Dividing log P by lp
    lets longer ones compete: α = 0 does nothing, 0.6 to 0.7 was best there. The 5 makes it gentle to short texts.

    References:
        Wu et al. 2016, "Google's neural machine translation system", section 7. https://arxiv.org/abs/1609.08144

    Example:
        >>> wu_penalty(1, alpha=0.6), wu_penalty(7, alpha=1)
        (1.0, 2.0)
    """
    return float(((5 + length) / 6) ** alpha)


def power_penalty(length: int, *, alpha: float) -> float:
    """Return |Y|^α: with α = 1 texts are ranked by the mean log-probability of their tokens.

    Example:
        >>> power_penalty(4, alpha=0.5)
        2.0
    """
    return float(length**alpha)


VASWANI = partial(wu_penalty, alpha=0.6)
"""Vaswani et al. 2017, section 6.1: 4 beams and α = 0.6, chosen on the development set."""


def penalties(penalty: LengthPenalty, longest: int) -> list[float]:
    """Return the length penalties of 1, 2, …, `longest` tokens."""
    values: list[float] = []
    for length in range(1, longest + 1):
        try:
            value = penalty(length)
        except OverflowError:
            value = math.inf
        if not 0 < value < math.inf:
            raise ModelError(
                f"`length_penalty` must be a number above 0, got {value} for {length} tokens; choose another α"
            )
        values.append(value)
    return values
