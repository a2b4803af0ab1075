"""The figures of waves at one length: what is covered, resolved, seen, and what is taken for something else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.geometry.position_rounding import code_distance
from embedwatch.geometry.positions import (
    Alias,
    alias_beyond,
    alias_floor,
    coverage,
    kernel,
    lobe_edge,
    unseen_pairs,
    wavelengths,
)

__all__ = ["MOST_LAGS", "Seen", "WaveFigures", "wave_figures"]

MOST_LAGS = 1 << 17
"""Offsets beyond are not looked at."""
PLACES = 64
"""Codes are rounded at so many positions, evenly spaced."""


@dataclass(frozen=True)
class Seen:
    """What training saw.

    Args:
        frequencies: of the pairs then, (d/2,).
        length: up to which.
    """

    frequencies: Tensor
    length: int


@dataclass(frozen=True)
class WaveFigures:
    """Figures of d/2 waves at a length L.

    Args:
        pairs: that turn at all.
        longest: wavelength.
        covered: share of pairs that complete a period within the trained length.
        covered_asked: within L.
        resolution: 1 - g(1).
        alias: the far offset that looks most like none; `None` for a length without far offsets.
        alias_float32: how many times as far apart codes are at it as at the next position, kept in float32.
        alias_rounded: the same, kept in the model's own type.
        unseen: share of pairs that meet phases at L that they never saw.
        ends: g(L - 1).
        kernel: g at the offsets that were looked at, (K,).
    """

    pairs: int
    longest: float
    covered: float
    covered_asked: float
    resolution: float
    alias: Alias | None
    alias_float32: float | None
    alias_rounded: float | None
    unseen: float
    ends: float | None
    kernel: Tensor


def wave_figures(frequencies: Tensor, seen: Seen, length: int, *, dtype: torch.dtype = torch.float32) -> WaveFigures:
    """Return the figures of waves. Pairs that stand still are left out of shares, and look alike at all offsets.

    Args:
        frequencies: of the pairs in use, (d/2,).
        seen: what training saw.
        length: L.
        dtype: type in which codes are kept.

    Example:
        >>> from embedwatch.geometry.rope import base_frequencies
        >>> waves = base_frequencies(128, 10_000.0)
        >>> found = wave_figures(waves, Seen(waves, 4_096), 32_768)
        >>> found.covered, found.covered_asked, found.unseen, found.alias.lag
        (0.71875, 0.9375, 0.28125, 117)
    """
    turning = frequencies > 0
    pairs = int(turning.sum())
    g = kernel(frequencies, max(2, min(length, MOST_LAGS)))
    alias = alias_beyond(g[:length], alias_floor(lobe_edge(g)))
    exact: float | None = None
    rounded: float | None = None
    if alias is not None:
        places = torch.linspace(0, max(0, length - 1 - alias.lag), PLACES, dtype=torch.float64).round()
        exact, rounded = (_times_neighbours(frequencies, alias.lag, kept, places) for kept in (torch.float32, dtype))
    ends = float(kernel(frequencies, length, start=length - 1)[0]) if length > 1 else None
    return WaveFigures(
        pairs,
        float(wavelengths(frequencies[turning]).max()) if pairs else float("inf"),
        coverage(seen.frequencies, seen.length) / max(pairs, 1),
        coverage(frequencies, length) / max(pairs, 1),
        max(0.0, 1 - float(g[1])),
        alias,
        exact,
        rounded,
        unseen_pairs(seen.frequencies, frequencies, seen.length, length) / max(pairs, 1),
        ends,
        g,
    )


def _times_neighbours(frequencies: Tensor, lag: int, dtype: torch.dtype, places: Tensor) -> float:
    """Return how many times as far apart codes are at a lag as at the next position."""
    near = code_distance(frequencies, 1, dtype, places)
    return code_distance(frequencies, lag, dtype, places) / near if near > 0 else 0.0
