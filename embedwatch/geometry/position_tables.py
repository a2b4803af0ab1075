"""Tables of learned positions: rows that repeat, rows that were never trained, periods.

Neighbours of a trained table resemble one another, and all rows share a mean, so that raw cosines say little: the far
rows of MPNet have a raw cosine of 0.97 and are healthy. Everything here is measured after the mean is taken away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "Period",
    "Twin",
    "adjacent_cosines",
    "centred",
    "dead_rows",
    "dominant_period",
    "far_pair",
    "lag_cosines",
    "toeplitz_share",
    "twins",
    "untrained_tail",
]

CHUNK = 1024
MOST_PAIRED = 4096
"""So many rows are compared pair by pair, from the first on."""
TWIN = 0.1
"""Rows nearer than this share of the distance of neighbours are one."""
DEAD = 1e-4
"""A norm below this share of the median is none."""
NOISE = 4.0
"""Standard deviations of the cosine of unrelated rows, `1 / √D`, below which neighbours are unrelated."""
TRAINED = 1.5
"""Neighbours of a trained table are so many times more alike than that."""
SPARED = 2
"""Rows at the end that may be of their own kind, as in healthy tables, and do not end a tail."""


@dataclass(frozen=True)
class Twin:
    """Two rows that are one.

    Args:
        row, other: their places, `row < other`.
        distance: over that of neighbours.
    """

    row: int
    other: int
    distance: float


@dataclass(frozen=True)
class Period:
    """The strongest wave along a table.

    Args:
        rows: its length.
        share: of the energy of all waves.
        chance: the share that the strongest wave of the same rows in another order has, at its 99 % quantile.
    """

    rows: float
    share: float
    chance: float


def centred(rows: Tensor) -> Tensor:
    """Return rows without their mean. Shape: (N, D) -> (N, D) float64."""
    exact = rows.double()
    return exact - exact.mean(0)


def _unit(rows: Tensor) -> Tensor:
    """Return rows of norm 1; rows of zeros stay. Shape: (N, D)."""
    unit: Tensor = functional.normalize(rows, dim=1, eps=1e-300)
    return unit


def adjacent_cosines(rows: Tensor) -> Tensor:
    """Return the cosine of each row with the next, after centring. Shape: (N, D) -> (N - 1,) float64."""
    unit = _unit(centred(rows))
    return (unit[1:] * unit[:-1]).sum(1)


def lag_cosines(rows: Tensor) -> Tensor:
    """Return the mean cosine of rows by how far they are apart, after centring, from lag 0 on.

    By a Fourier transform along the table, so that no matrix of all pairs is made.

    Shape: (N, D) -> (N,) float64.

    Example:
        >>> block = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
        >>> round(float(lag_cosines(block.repeat(4, 1))[8]), 6)
        1.0
    """
    unit = _unit(centred(rows))
    count = len(unit)
    waves = torch.fft.rfft(unit, n=2 * count, dim=0)
    sums = torch.fft.irfft(waves.abs().square().sum(1), n=2 * count)[:count]
    means: Tensor = sums / torch.arange(count, 0, -1, dtype=torch.float64)
    return means


def far_pair(rows: Tensor, apart: int) -> Twin | None:
    """Return the two rows at least so far apart that resemble each other most, with their cosine as `distance`.

    After centring, among the first 4,096 rows. Shape: (N, D).
    """
    unit = _unit(centred(rows)[:MOST_PAIRED])
    best: Twin | None = None
    for start in range(0, len(unit), CHUNK):
        part = unit[start : start + CHUNK] @ unit.T
        places = torch.arange(start, start + len(part))[:, None]
        part = part.masked_fill(torch.arange(len(unit))[None] < places + apart, -2.0)
        value, place = part.flatten().max(0)
        if float(value) > (-2.0 if best is None else best.distance):
            best = Twin(start + int(place) // len(unit), int(place) % len(unit), float(value))
    return best


def twins(rows: Tensor) -> list[Twin]:
    """Return rows that are another one again: nearer to it than a tenth of the usual distance of neighbours.

    Each row is named once, with the first that it repeats, among the first 4,096. Rows of zeros are dead, and no twins.

    Shape: (N, D).

    Example:
        >>> rows = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
        >>> rows[40] = rows[7]
        >>> [(twin.row, twin.other) for twin in twins(rows)]
        [(7, 40)]
    """
    exact = rows[:MOST_PAIRED].double()
    alive = exact.norm(dim=1) > 0
    steps = (exact[1:] - exact[:-1]).norm(dim=1)
    moving = steps[steps > 0]
    if len(exact) < 2:
        return []
    usual = float(moving.median()) if len(moving) else 1.0
    found = []
    for start in range(0, len(exact), CHUNK):
        part = exact[start : start + CHUNK]
        apart = torch.cdist(part, exact, compute_mode="donot_use_mm_for_euclid_dist") / usual
        later = torch.arange(len(exact))[None] >= torch.arange(start, start + len(part))[:, None]
        apart = apart.masked_fill(later | ~alive[None] | ~alive[start : start + len(part), None], torch.inf)
        near = apart <= TWIN
        for place in near.any(1).nonzero()[:, 0].tolist():
            first = int(near[place].nonzero()[0, 0])
            found.append(Twin(first, start + place, float(apart[place, first])))
    return found


def dead_rows(rows: Tensor) -> Tensor:
    """Return the places of rows that are zero, or as good as. Shape: (N, D) -> (M,) int64."""
    norms = rows.double().norm(dim=1)
    places: Tensor = (norms <= DEAD * norms.median()).nonzero()[:, 0] if len(norms) else norms.long()
    return places


def untrained_tail(rows: Tensor) -> int:
    """Return how many rows at the end have neighbours as unlike as unrelated rows, where those before do not.

    Training makes neighbours alike, since texts begin anywhere; positions that no text reached stay as they were
    drawn. Of a table that was never trained at all this says 0: it has no part that was.

    Shape: (N, D).
    """
    if len(rows) < 4 * SPARED:
        return 0
    raw = _unit(rows.double())
    alike = torch.minimum(adjacent_cosines(rows), (raw[1:] * raw[:-1]).sum(1))  # what is drawn has no mean to share
    bound = NOISE / rows.shape[1] ** 0.5
    unrelated = alike < bound
    if float(alike.median()) < TRAINED * bound and float(alike[: len(alike) // 4].median()) < TRAINED * bound:
        return 0
    related = (~unrelated[: len(unrelated) - SPARED]).nonzero()[:, 0]
    last = int(related[-1]) + 1 if len(related) else 0
    tail = len(rows) - 1 - last
    return tail if tail > SPARED else 0


def dominant_period(rows: Tensor, *, permutations: int = 99, seed: int = 0) -> Period | None:
    """Return the strongest wave along a table, beside the same rows in random orders; `None` for too few rows.

    The energy of a wave is summed over dimensions, after centring; a wave once along the table counts too.

    Shape: (N, D).

    Example:
        >>> wave = torch.sin(torch.arange(128) * torch.pi / 8)[:, None] * torch.ones(1, 4)
        >>> found = dominant_period(wave)
        >>> found.rows, round(found.share, 3)
        (16.0, 1.0)
    """
    if len(rows) < 8 or not bool((rows != rows[0]).any()):
        return None
    exact = centred(rows)
    energy = _energies(exact)
    peak = int(energy.argmax())
    generator = torch.Generator().manual_seed(seed)
    thin = exact.float()
    shares = torch.stack(
        [_energies(thin[torch.randperm(len(thin), generator=generator)]).max() for _ in range(permutations)]
    )
    return Period(len(rows) / (peak + 1), float(energy[peak]), float(shares.double().quantile(0.99)))


def _energies(rows: Tensor) -> Tensor:
    """Return the share of energy of each wave, from once along the table on. Shape: (N, D) -> (N // 2,)."""
    waves = torch.fft.rfft(rows, dim=0).abs().square().sum(1)
    if len(rows) % 2 == 0:
        waves[-1] /= 2  # it stands for itself, the others for their mirror too
    shares: Tensor = waves[1:] / waves[1:].sum()
    return shares


def toeplitz_share(rows: Tensor) -> float | None:
    """Return how much of the resemblance of rows their offset alone explains: R² of cosines over lags, raw.

    Shape: (N, D); the first 4,096 rows.
    """
    unit = _unit(rows[:MOST_PAIRED].double())
    count = len(unit)
    if count < 3:
        return None
    first, second = torch.triu_indices(count, count, 1)
    cosines = (unit @ unit.T)[first, second]
    lags = second - first
    numbers = torch.bincount(lags, minlength=count).clamp(min=1)
    means = torch.zeros(count, dtype=torch.float64).index_add_(0, lags, cosines) / numbers
    whole = float((cosines - cosines.mean()).square().sum())
    return 1 - float((cosines - means[lags]).square().sum()) / whole if whole > 0 else None
