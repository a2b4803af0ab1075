"""Sums over blocks of consecutive rows: all that a calibrated comparison needs to know of a stream."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.whitening import Whitening, dead_energy, whiten

__all__ = ["Blocks", "Columns", "block_features", "join_blocks", "joined"]

OCTAVES = (-3, 5)
"""Range of the histograms of q and m over their means, as powers of two; what lies beyond is in an outer bin."""
BINS_PER_OCTAVE = 32
BINS = (OCTAVES[1] - OCTAVES[0]) * BINS_PER_OCTAVE
"""Bins of 2.2 % each: thresholds of tails are edges of these."""
SCALARS = 5
HISTOGRAMS = 2
LOG_RANGE = 5.0
"""The logarithm of a norm is cut so far from the usual one: a zero row must not weigh like a thousand."""


class Columns(NamedTuple):
    """Where the numbers of a row lie: q, distance from the mean, norm, dead energy, m; bins of q and m; u; u².

    Args:
        alive: number A of directions that carry something.
    """

    alive: int

    @property
    def width(self) -> int:
        """Number of columns, 5 + 512 + 2 A."""
        return SCALARS + HISTOGRAMS * BINS + 2 * self.alive

    @property
    def tails(self) -> slice:
        """Number of rows in each bin of q."""
        return slice(SCALARS, SCALARS + BINS)

    @property
    def half_tails(self) -> slice:
        """Number of rows in each bin of m."""
        return slice(SCALARS + BINS, SCALARS + 2 * BINS)

    @property
    def first(self) -> slice:
        """Sums of u."""
        return slice(self.width - 2 * self.alive, self.width - self.alive)

    @property
    def second(self) -> slice:
        """Sums of u²."""
        return slice(self.width - self.alive, self.width)


class Blocks(NamedTuple):
    """Sums over blocks of rows, in order of their keys.

    Args:
        keys: row number of a block's rows, divided by the size and rounded down, (n,) int64, ascending.
        rows: how many rows each holds, (n,) int64.
        sums: of their columns, (n, W) float64.
    """

    keys: Tensor
    rows: Tensor
    sums: Tensor


def block_features(rows: Tensor, norms: Tensor, by: Whitening, usual_norm: float) -> Tensor:
    """Return the columns of each row, of which blocks keep sums.

    `q = ‖u‖²` over the directions alive, the distance `Σ λ u²` from the mean in the space itself, the logarithm of the
    norm over the usual one, that of the energy in dead directions, `m = Σ √λ u²` half way between q and the distance,
    the bins of q and of m, u and u².

    Shape: (N, D), (N,) -> (N, W) float64.
    """
    columns = Columns(by.alive)
    white = whiten(rows, by)
    alive = white[:, : by.alive]
    squares = alive.square()
    found = white.new_zeros(len(white), columns.width)
    found[:, 0] = squares.sum(1)
    variances = by.variances[: by.alive].to(white.device)
    roots = variances.sqrt()
    weighted = squares @ torch.stack([variances, roots], 1)  # (N, 2)
    found[:, 1], found[:, 4] = weighted.unbind(1)
    scale = (norms.double() / usual_norm).clamp(min=torch.finfo(torch.float64).tiny)
    found[:, 2] = scale.log().clamp(-LOG_RANGE, LOG_RANGE)
    found[:, 3] = dead_energy(white, by)
    found[:, columns.tails].scatter_(1, _bin(found[:, 0] / by.alive), 1.0)
    found[:, columns.half_tails].scatter_(1, _bin(found[:, 4] / float(roots.sum())), 1.0)
    found[:, columns.first] = alive
    found[:, columns.second] = squares
    return found


def _bin(values: Tensor) -> Tensor:
    """Return the bins of what is 1 in the mean. Shape: (N,) -> (N, 1)."""
    octave = torch.log2(values.clamp(min=2.0 ** OCTAVES[0]))
    return ((octave - OCTAVES[0]) * BINS_PER_OCTAVE).floor().long().clamp(0, BINS - 1)[:, None]


def join_blocks(parts: list[Blocks]) -> Blocks:
    """Return blocks of one size as one list: those of one key are added up."""
    keys = torch.cat([part.keys for part in parts])
    distinct, place = torch.unique(keys, return_inverse=True)
    rows = torch.zeros_like(distinct).index_add_(0, place, torch.cat([part.rows for part in parts]))
    sums = torch.cat([part.sums for part in parts])
    total = sums.new_zeros(len(distinct), sums.shape[1]).index_add_(0, place, sums)
    return Blocks(distinct, rows, total)


def joined(blocks: Blocks, times: int) -> Blocks:
    """Return blocks of so many times the size."""
    if times == 1:
        return blocks
    return join_blocks([blocks._replace(keys=torch.div(blocks.keys, times, rounding_mode="floor"))])
