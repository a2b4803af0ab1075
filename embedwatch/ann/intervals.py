"""Intervals of shares, one share a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["CONFIDENT", "interval"]

CONFIDENT = 1.959964
"""Standard deviations of a 95 % interval."""


def interval(shares: Sequence[float] | Any) -> tuple[float, float]:
    """Return a 95 % interval of the mean of shares: Wilson's, with as many trials as their spread allows.

    Where all agree, each counts as one trial: nothing but hits in 100 queries is no proof of 1.

    Shape: (Q,), Q >= 1.

    Example:
        >>> low, high = interval([1.0] * 100)
        >>> round(low, 3), high
        (0.963, 1.0)
        >>> low, high = interval([0.8, 0.9, 1.0, 0.9] * 25)
        >>> round(low, 2), round(high, 2)
        (0.89, 0.91)
    """
    count, mean = len(shares), float(np.mean(shares))
    spread = float(np.var(shares)) / max(count - 1, 1)
    trials = max(mean * (1 - mean) / spread, 1.0) if spread > 0 else float(count)
    square = CONFIDENT**2 / trials
    centre = (mean + square / 2) / (1 + square)
    half = CONFIDENT / (1 + square) * float(np.sqrt(mean * (1 - mean) / trials + square / (4 * trials)))
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))
