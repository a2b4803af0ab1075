"""Cosines and sines of positions as a model makes them, beside those of float64: what they were made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.geometry.position_rounding import angle_error

__all__ = [
    "FrequencyMatch",
    "Rendering",
    "frequencies_of",
    "match_frequencies",
    "probe_positions",
    "rendered",
    "shared",
]

ALL = 2_048
"""Up to this length every position is tried; of longer ones these many from the start, and as many spread further."""
TURNED = 1.5
"""Radians to which a pair may turn where its frequency is read off: before it can be taken for another."""
TIE = 1e-12


@dataclass(frozen=True)
class FrequencyMatch:
    """How frequencies compare with others.

    Args:
        error: largest relative difference of a pair.
        stretch: median of expected over found: 8 where positions are read as an eighth.
        phase: radians that the worst pair is off one position further.
    """

    error: float
    stretch: float
    phase: float


@dataclass(frozen=True)
class Rendering:
    """How cosines and sines compare with exact ones.

    Args:
        error: largest difference of an entry.
        shared: share of neighbours with one and the same code.
        rounded: the type in which positions must have been kept to give these values, where one explains them.
        first: first position that has the code of the next; `None` where none has.
    """

    error: float
    shared: float
    rounded: str
    first: int | None


def probe_positions(length: int) -> Tensor:
    """Return positions below a length at which to look, pairs of neighbours among them. Shape: -> (T,) int64."""
    if length <= 2 * ALL:
        return torch.arange(length)
    spread = torch.linspace(ALL, length - 2, ALL // 2, dtype=torch.float64).long()
    places: Tensor = torch.unique(torch.cat([torch.arange(ALL), spread, spread + 1]))
    return places


def match_frequencies(found: Tensor, expected: Tensor) -> FrequencyMatch:
    """Return how frequencies compare with those that should be. Shape: (d/2,), (d/2,).

    Example:
        >>> match_frequencies(torch.tensor([0.5, 0.05]), torch.tensor([1.0, 0.1])).stretch
        2.0
    """
    held, right = found.double().cpu(), expected.double().cpu()
    if held.shape != right.shape or not bool(held.isfinite().all()):
        return FrequencyMatch(math.inf, math.nan, math.inf)
    apart = (held - right).abs()
    scale = torch.maximum(right.abs(), torch.full_like(right, TIE))
    moving = (held > 0) & (right > 0)
    stretch = float((right[moving] / held[moving]).median()) if bool(moving.any()) else math.nan
    return FrequencyMatch(float((apart / scale).max()), stretch, float(apart.max()))


def frequencies_of(cos: Tensor, sin: Tensor) -> Tensor | None:
    """Return the frequencies that rows of cosines and sines of the positions 0, 1, … were made with.

    Each is read off one step, and then as far out as the pair has turned by at most 1.5 radians, among the first 2,048
    rows: those of `probe_positions` have no gaps there.

    Shape: (T, d/2), (T, d/2) -> (d/2,) float64.

    Example:
        >>> angles = torch.outer(torch.arange(100.0), torch.tensor([1.0, 0.01])).double()
        >>> [round(value, 6) for value in frequencies_of(angles.cos(), angles.sin()).tolist()]
        [1.0, 0.01]
    """
    cos, sin = cos[:ALL], sin[:ALL]
    if len(cos) < 2:
        return None
    once = torch.atan2(sin[1].double(), cos[1].double())
    places = (TURNED / once.abs().clamp(min=TIE)).floor().clamp(1, len(cos) - 1).long()
    columns = torch.arange(cos.shape[1])
    frequencies: Tensor = torch.atan2(sin[places, columns].double(), cos[places, columns].double()) / places
    return frequencies


def rendered(cos: Tensor, sin: Tensor, frequencies: Tensor, positions: Tensor, temperature: float = 1.0) -> Rendering:
    """Return how cosines and sines compare with exact ones of the same frequencies.

    Where they are wrong, those of positions that were rounded to bfloat16 or float16 are tried.

    Shape: cos and sin (T, d/2), frequencies (d/2,), positions (T,) ascending.
    """
    error = float(angle_error(cos, sin, frequencies, positions, temperature).max())
    share, first = shared(torch.cat([cos, sin], dim=1), positions)
    explained = ""
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        rounded = positions.double().to(dtype).double()
        if torch.equal(rounded, positions.double()):
            continue
        usual = rounded.isfinite()
        if not bool(usual.any()):
            continue
        apart = angle_error(cos[usual], sin[usual], frequencies, rounded[usual], temperature)
        if float(apart.max()) < error / 10:
            explained = name
            break
    return Rendering(error, share, explained, first)


def shared(codes: Tensor, positions: Tensor) -> tuple[float, int | None]:
    """Return the share of neighbouring positions with the same code, and the first of them. Shape: (T, d), (T,)."""
    next_to = positions[1:] == positions[:-1] + 1
    if not bool(next_to.any()):
        return 0.0, None
    same = (codes[1:] == codes[:-1]).all(1) & next_to
    places = same.nonzero()[:, 0]
    return float(same.sum()) / int(next_to.sum()), int(positions[places[0]]) if len(places) else None
