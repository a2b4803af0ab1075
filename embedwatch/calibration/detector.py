"""The detector: evidence of disjoint windows is accumulated, so that looking at every one is no sin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from embedwatch.calibration.evalues import e_value

__all__ = ["MEMORY", "Accumulated", "accumulate"]

MEMORY = 4.0
"""Evidence is kept to so many times its threshold: enough that it does not flicker, and soon gone after a repair."""


@dataclass(frozen=True, slots=True)
class Accumulated:
    """What some windows come to.

    Args:
        evidence: M after the last window.
        windows: how many of the last windows speak for a change, counted from where it most likely began; at least 1.
    """

    evidence: float
    windows: int


def accumulate(p_values: Sequence[float], threshold: float) -> Accumulated:
    """Return the evidence of windows of which each has a p-value, oldest first.

    `M_t = min(4 A, (1 + M_(t-1)) e_t)` with `M_0 = 0`, the Shiryaev-Roberts sum over all places where a change may have
    begun, and A the threshold. While nothing changes, M reaches A at the earliest after A windows on average; what is
    cut at 4 A only makes it smaller. Where M was at A and falls below, it begins anew at 0, so that the next alarm is
    as far off as the first. `windows` goes by the most likely place, `C_t = max(1, C_(t-1)) e_t` (CUSUM).

    References:
        Shin, Ramdas & Rinaldo 2024, "E-detectors: a nonparametric framework for sequential change detection"
        (https://arxiv.org/abs/2203.03532), for the sum and its average run length.

    Args:
        p_values: of disjoint windows.
        threshold: A.

    Example:
        >>> accumulate([0.6, 0.7, 0.002, 0.002], threshold=1_000)
        Accumulated(evidence=322.5..., windows=2)
    """
    total, single, windows = 0.0, 0.0, 0
    for p_value in p_values:
        evidence, alarmed = e_value(p_value), total >= threshold
        total = min(MEMORY * threshold, (1 + total) * evidence)
        windows = windows + 1 if single > 1 else 1
        single = min(MEMORY * threshold, max(1.0, single) * evidence)
        if alarmed and total < threshold:
            total, single = 0.0, 0.0
    return Accumulated(total, max(1, windows))
