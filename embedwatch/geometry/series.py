"""Series: what stands out in numbers that come one after another: noise, rises that stay, waves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rise", "Wave", "noise", "rise", "wave"]

NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
LEAST_NOISE = 8
BEFORE, LEAST_BEFORE = 32, 8
"""A rise is one above the median of so many numbers before it, and there must be so many."""
LEAST_RISE = 20
"""What is usual must be known from some more."""
LASTS = 3
"""A rise lasts so many numbers: one that is high by itself is an odd batch."""
LEAST_WAVE = 24
ALTERNATING = 2.0
"""The shortest period."""
BETWEEN = 10
"""A period is refined to so many parts of the distance between two frequencies."""
REFINED = 3
ROUNDING = 1e-9
"""What varies by less, against the numbers, is rounding."""
DEGREE = 3
"""A course is a polynomial of this degree, to see what waves around it."""
SLOWEST = 3
"""A wave comes at least so many times: what is slower is the course itself."""


class Rise(NamedTuple):
    """A rise above what was before.

    Args:
        at: place of the first of three numbers of which two are high.
        by: height.
        before: the median of what was before.
        score: its height in standard deviations of the noise.
    """

    at: int
    by: float
    before: float
    score: float


class Wave(NamedTuple):
    """A sine within numbers.

    Args:
        period: in numbers.
        height: from trough to crest.
        chance: how probable it is that noise holds one that stands out so much.
    """

    period: float
    height: float
    chance: float


def noise(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the noise in numbers, robustly; `None` for too few.

    Formula: 1.4826 / √2 × the median absolute deviation of the differences of neighbours: a course adds little to it.
    """
    if len(values) < LEAST_NOISE:
        return None
    return _spread([after - before for before, after in pairwise(values)]) / math.sqrt(2)


def rise(values: Sequence[float]) -> Rise | None:
    """Return the rise that stands out most from what is usual; `None` for too few numbers, or where nothing varies.

    Formula: the largest `median of x_t … x_t+2 - median of the 32 before`, over the larger of the noise and the spread
    of `x_t - median of the 32 before` at all times; a single high number is none.

    Example:
        >>> values = [2.0, 2.1] * 10 + [5.0, 5.1, 4.0] + [2.1, 2.0] * 10
        >>> found = rise(values)
        >>> found.at, round(found.by, 2)
        (19, 3.0)
    """
    if len(values) < LEAST_RISE:
        return None
    places = range(LEAST_BEFORE, len(values))
    before = {place: median(values[max(place - BEFORE, 0) : place]) for place in places}
    sigma = max(noise(values) or 0.0, _spread([values[place] - before[place] for place in places]))
    if not 0 < sigma < math.inf:
        return None
    heights = {place: median(values[place : place + LASTS]) - before[place] for place in places[: 1 - LASTS]}
    at = max(heights, key=lambda place: heights[place])
    return Rise(at, heights[at], before[at], heights[at] / sigma)


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of numbers by the median of their distances from their median."""
    middle = median(values)
    return NORMAL * median(abs(value - middle) for value in values)


def wave(values: Sequence[float]) -> Wave | None:
    """Return the sine that stands out most from the noise; `None` for too few numbers, or where nothing varies.

    The course, a cubic, is taken away, and noise in which each number follows the one before is whitened (AR(1)). With
    `g` the share of the best sine in the power of `m` frequencies, `chance = 3 m (1 - g)^(m - 1)` at most: Fisher's
    bound, and three for the choice between two frequencies, which finds waves that do not fit into the numbers.

    References: Fisher 1929, "Tests of significance in harmonic analysis"; whitening: Torrence & Compo 1998, "A
    practical guide to wavelet analysis".

    Example:
        >>> found = wave([(-1.0) ** step + 0.01 * (step * 7 % 5) for step in range(40)])
        >>> found.period, found.chance < 1e-6
        (2.0, True)
    """
    if len(values) < LEAST_WAVE:
        return None
    rest = _without_course(torch.tensor(values, dtype=torch.float64))
    total, largest = float(rest.square().sum()), max(map(abs, values))
    if not len(rest) * (ROUNDING * largest) ** 2 < total < math.inf:
        return None
    follows = max(0.0, float((rest[1:] * rest[:-1]).sum()) / total)
    white = rest[1:] - follows * rest[:-1]
    white = white[len(white) % 2 :]  # an even number of them has a frequency of period 2
    power = _power(white)[SLOWEST:]
    whole, number = float(power.sum()) * 2 / len(white), len(power)  # of squares, as Parseval has it
    if not whole > 0 or number < 2:
        return None
    period, fitted = _refined(white, int(power.argmax()) + SLOWEST)
    share = min(1.0, float(fitted.square().sum()) / whole)
    return Wave(period, _height(_sine(rest, period)), min(1.0, REFINED * number * (1 - share) ** (number - 1)))


def _without_course(values: Tensor) -> Tensor:
    """Return numbers without the cubic through them. Shape: (n,)."""
    times = torch.linspace(-1, 1, len(values), dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(torch.vander(times, DEGREE + 1)).Q  # (n, 4)
    return values - basis @ (basis.T @ values)


def _power(values: Tensor) -> Tensor:
    """Return the power at each frequency, (n / 2 + 1,); halved at the last: of noise it has one part there, not two."""
    power: Tensor = torch.fft.rfft(values).abs().square()
    power[-1] /= 2
    return power


def _refined(values: Tensor, times: int) -> tuple[float, Tensor]:
    """Return the period and the sine that fits best, of those that come about so many times in all."""
    length = len(values)
    if 2 * times == length:
        return ALTERNATING, _sine(values, ALTERNATING)
    near = [length / max(times + part / BETWEEN, SLOWEST) for part in range(-BETWEEN // 2, BETWEEN // 2 + 1)]
    fits = {period: _sine(values, period) for period in near}
    best = min(near, key=lambda period: float((values - fits[period]).square().sum()))
    return best, fits[best]


def _sine(rest: Tensor, period: float) -> Tensor:
    """Return the sine of this period that fits best. Shape: (n,)."""
    angles = 2 * math.pi / period * torch.arange(len(rest), dtype=torch.float64)
    parts = torch.stack([angles.cos(), angles.sin()], 1)  # (n, 2)
    if period == ALTERNATING:
        parts = parts[:, :1]  # sampled at its crests and troughs, a sine has one part
    fitted: Tensor = parts @ torch.linalg.lstsq(parts, rest[:, None]).solution
    return fitted[:, 0]


def _height(fitted: Tensor) -> float:
    return float(fitted.max() - fitted.min())
