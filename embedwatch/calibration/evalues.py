"""E-values: evidence against "all is as it was" that may be multiplied from window to window."""

from __future__ import annotations

import math

from embedwatch.core.errors import UsageError

__all__ = ["FINEST", "e_value"]

FINEST = 2e-4
"""The smallest p-value that counts: what 9,999 permutations give a family that has half of the level."""
NEARLY_ONE = 1e-3
"""Below this distance from 1 the calibrator is its limit there, 1/2: the formula loses its digits."""


def e_value(p_value: float) -> float:
    """Return the e-value of a p-value, `(1 - p + p ln p) / (p ln² p)`.

    It is the calibrator `κ p^(κ - 1)` averaged over all κ from 0 to 1: nothing is left to choose. Its mean is at most 1
    where healthy p-values are uniform or larger, and so is that of a product of independent ones.

    Range: 0.5 (p = 1) to 68.8 (p = 0.0002 or below).

    References:
        Vovk & Wang 2021, "E-values: calibration, combination and applications" (https://arxiv.org/abs/1912.06116).

    Args:
        p_value: from 0 to 1; below 0.0002 it counts as 0.0002.

    Raises:
        UsageError: if it is no probability.

    Example:
        >>> [round(e_value(p), 2) for p in (1.0, 0.5, 0.1, 0.01, 0.002, 0.0002)]
        [0.5, 0.64, 1.26, 4.45, 12.76, 68.79]
    """
    if not 0 <= p_value <= 1:
        raise UsageError(f"`p_value` must be from 0 to 1, got {p_value!r}; give a probability")
    p_value = max(p_value, FINEST)
    if p_value > 1 - NEARLY_ONE:
        return 0.5
    log = math.log(p_value)
    return (1 - p_value + p_value * log) / (p_value * log * log)
