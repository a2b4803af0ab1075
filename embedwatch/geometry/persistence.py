"""Persistence: for how many rows a stream stays where it is, which is how many rows count as one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["cell_decay_length", "decay_length", "steps_together"]

CERTAIN = 3
"""Standard errors by which the first lag must stand out, before a stream counts as anything but independent."""
LOST = 2
"""Standard errors at which later lags are lost in noise."""
REACH = 5
"""Lags are added up to so many decay lengths: what comes later is noise."""
ROUNDING = 1e-12
"""A stream whose variance is at most this share of its mean square is constant: float32 knows no less."""
PART = 4
"""The longest lag is this part of the rows."""


def decay_length(series: Tensor) -> float:
    """Return for how many rows a stream of vectors keeps what it has in common: 1 for independent rows.

    `l = Σ_k C(k) / C(1)` with C the trace of the autocovariance at lag k, until it is lost in noise. Dividing by C(1)
    and not by C(0) leaves out what differs from row to row inside a topic; the usual integrated time `Σ C(k) / C(0)`
    counts it, and is too short by that share. A topic that is left with probability p at each row gives 1 / p.

    Shape: (N, F), in order -> number ≥ 1.

    References:
        Sokal 1997, "Monte Carlo methods in statistical mechanics", section 3, for windowing.
    """
    centred, count = _centred(series), len(series)
    if count <= PART or centred is None:
        return 1.0
    covariance = centred.T @ centred / count
    error = math.sqrt(float(covariance.square().sum()) / count)
    return _added_up(lambda lag: float((centred[:-lag] * centred[lag:]).sum()) / (count - lag), error, count)


def cell_decay_length(cells: Tensor) -> float:
    """Return the same of a stream of cells, as `decay_length` of their indicators: `C(k) = P(same at k) - Σ p²`.

    Shape: (N,) int64, in order -> number ≥ 1.
    """
    count = len(cells)
    if count <= PART:
        return 1.0
    share = torch.bincount(cells).double() / count
    alike = float(share.square().sum())
    error = math.sqrt(max(0.0, alike - 2 * float(share.pow(3).sum()) + alike**2) / count)
    if not error > 0:
        return 1.0
    return _added_up(lambda lag: float((cells[:-lag] == cells[lag:]).double().mean()) - alike, error, count)


def _added_up(covariance: Callable[[int], float], error: float, count: int) -> float:
    first = covariance(1)
    if first < CERTAIN * error:
        return 1.0
    total = 0.0
    for lag in range(1, count // PART + 1):
        now = covariance(lag)
        if now < LOST * error or lag > REACH * max(1.0, total):
            break
        total += now / first
    return max(1.0, total)


def steps_together(means: Tensor) -> bool:
    """Return whether the means of consecutive blocks still resemble each other: the blocks are too short.

    Shape: (blocks, F), in order.
    """
    centred, count = _centred(means), len(means)
    if count <= PART or centred is None:
        return False
    covariance = centred.T @ centred / count
    error = math.sqrt(float(covariance.square().sum()) / count)
    return float((centred[:-1] * centred[1:]).sum()) / (count - 1) > CERTAIN * error


def _centred(series: Tensor) -> Tensor | None:
    """Return a stream without its mean, in float64; `None` where it is constant but for rounding."""
    wide = series.double()
    centred = wide - wide.mean(0)
    constant = not float(centred.square().sum()) > ROUNDING * float(wide.square().sum())
    return None if constant else centred
