"""Positions that turn: how alike two of them are, what is seen of each wave, and where one is taken for another.

Sinusoidal codes and rotary scores share one kernel. `g(k) = (2/d) Σ_i cos(ω_i k)` is the cosine of two sinusoidal
codes at the offset k, and the mean rotary score of isotropic queries and keys at it. A code has the norm `√(d/2)`, so
two lie `√(d (1 - g(k)))` apart.

No offset repeats exactly, since ω_0 = 1 rad has no period in whole numbers: "PE(0) = PE(10000)" is wrong (their cosine
is -0.06 at d = 512). What there is: a main lobe around 0, side lobes, and waves that have not completed a period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Alias",
    "alias_beyond",
    "alias_floor",
    "coverage",
    "kernel",
    "lobe_edge",
    "sinusoids",
    "unseen_pairs",
    "wavelengths",
]

CHUNK = 1 << 14
FAR = 100
"""Lags below this are near, whatever the main lobe is."""
LOBES = 10
"""An alias lies so many widths of the main lobe away, at least."""
SAME_PHASE = 1e-9


@dataclass(frozen=True)
class Alias:
    """The offset that looks most like none at all, among those that are far.

    Args:
        lag: the offset.
        cosine: its g.
        neighbours: how many times as far apart two positions are at this offset as two neighbours.
    """

    lag: int
    cosine: float
    neighbours: float


def kernel(frequencies: Tensor, stop: int, *, start: int = 0) -> Tensor:
    """Return g at the lags from `start` up to `stop`. Shape: (d/2,) -> (stop - start,) float64.

    Pairs that stand still count as they are: they look the same at all offsets.

    Example:
        >>> from embedwatch.geometry.rope import base_frequencies
        >>> round(float(kernel(base_frequencies(512, 10_000.0), 2)[1]), 4)
        0.9731
    """
    waves = frequencies.double()
    lags = torch.arange(start, stop, dtype=torch.float64)
    if not len(lags):
        return lags
    return torch.cat([torch.outer(part, waves).cos_().mean(1) for part in lags.split(CHUNK)])


def lobe_edge(g: Tensor) -> int:
    """Return the first lag at which g no longer falls: the edge of the main lobe, seen from 0. Shape: (K,).

    Example:
        >>> lobe_edge(torch.tensor([1.0, 0.6, 0.1, 0.2, 0.0]))
        2
    """
    rises = (g.diff() >= 0).nonzero()
    return int(rises[0, 0]) if len(rises) else max(0, len(g) - 1)


def alias_beyond(g: Tensor, beyond: int) -> Alias | None:
    """Return the worst lag from `beyond` on; `None` where there is none. Shape: g over lags 0, 1, …, (K,).

    Example:
        >>> from embedwatch.geometry.rope import base_frequencies
        >>> alias_beyond(kernel(base_frequencies(64, 10_000.0), 4_096), 100).lag
        101
    """
    if len(g) <= max(beyond, 1):
        return None
    value, place = g[beyond:].max(0)
    near = max(1 - float(g[1]), 0.0)
    apart = math.sqrt(max(1 - float(value), 0.0) / near) if near > 0 else 0.0
    return Alias(beyond + int(place), float(value), apart)


def alias_floor(edge: int) -> int:
    """Return the lag from which on resemblance is an alias: ten main lobes, and at least 100."""
    return max(LOBES * edge, FAR)


def wavelengths(frequencies: Tensor) -> Tensor:
    """Return `λ_i = 2π / ω_i`; infinite for what stands still. Shape: (d/2,) -> (d/2,) float64."""
    return 2 * math.pi / frequencies.double()


def coverage(frequencies: Tensor, length: int) -> int:
    """Return how many pairs complete a period within a length.

    For plain frequencies that is `⌊(d/2) ln(L / 2π) / ln(base)⌋ + 1`, at most d/2.

    Example:
        >>> from embedwatch.geometry.rope import base_frequencies
        >>> coverage(base_frequencies(128, 10_000.0), 4_096)
        46
    """
    return int((wavelengths(frequencies) <= length).sum())


def unseen_pairs(trained_with: Tensor, frequencies: Tensor, trained: int, length: int) -> int:
    """Return how many pairs meet phases at `length` that they never saw in training.

    Those that did not complete a period within the trained length, and turn further than they did there:
    `λ_i > L0` and `ω'_i L > ω_i L0`. Linear scaling, YaRN and Llama 3's have none; plain positions and NTK do.

    Args:
        trained_with: frequencies in training, (d/2,).
        frequencies: frequencies in use, (d/2,).
        trained: L0.
        length: L.
    """
    if length <= trained:
        return 0
    slow = wavelengths(trained_with) > trained
    further = frequencies.double() * length > trained_with.double() * trained * (1 + SAME_PHASE)
    return int((slow & further).sum())


def sinusoids(positions: Tensor, frequencies: Tensor, *, halves: bool = False) -> Tensor:
    """Return sinusoidal codes of positions, whole or not: sine and cosine in turn, or all sines in the first half.

    Shape: (T,), (d/2,) -> (T, d) float64.

    Example:
        >>> sinusoids(torch.tensor([0.0]), torch.tensor([1.0, 0.01])).tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    angles = torch.outer(positions.double(), frequencies.double())  # (T, d/2)
    if halves:
        return torch.cat([angles.sin(), angles.cos()], dim=1)  # (T, d)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)  # (T, d)
