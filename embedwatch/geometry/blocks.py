"""Sums over blocks of consecutive rows: all that a calibrated comparison needs to know of a stream."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.whitening import Whitening, dead_energy, whiten

__all__ = ["Blocks", "Columns", "block_features", "join_blocks", "joined"]

OCTAVES = (-3, 5)
"""Range of the histogram of q over its mean, as powers of two; what lies beyond is in the first or last bin."""
BINS_PER_OCTAVE = 32
BINS = (OCTAVES[1] - OCTAVES[0]) * BINS_PER_OCTAVE
"""Bins of 2.2 % each: thresholds of tails are edges of these."""
SCALARS = 4
LOG_RANGE = 5.0
"""The logarithm of a norm is cut so far from the usual one: a zero row must not weigh like a thousand."""


class Columns(NamedTuple):
    """Where the numbers of a row lie: q, distance from the mean, norm, dead energy; its tail bin; u; u².

    Args:
        alive: number A of directions that carry something.
    """

    alive: int

    @property
    def width(self) -> int:
        """Number of columns, 4 + 256 + 2 A."""
        return SCALARS + BINS + 2 * self.alive

    @property
    def tails(self) -> slice:
        """Number of rows in each bin of q."""
        return slice(SCALARS, SCALARS + BINS)

    @property
    def first(self) -> slice:
        """Sums of u."""
        return slice(SCALARS + BINS, SCALARS + BINS + self.alive)

    @property
    def second(self) -> slice:
        """Sums of u²."""
        return slice(SCALARS + BINS + self.alive, self.width)


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
    norm over the usual one, that of the energy in dead directions, the bin of q, u and u².

    Shape: (N, D), (N,) -> (N, W) float64.
    """
    columns = Columns(by.alive)
    white = whiten(rows, by)
    alive = white[:, : by.alive]
    squares = alive.square()
    found = white.new_zeros(len(white), columns.width)
    found[:, 0] = squares.sum(1)
    found[:, 1] = squares @ by.variances[: by.alive].to(white.device)
    scale = (norms.double() / usual_norm).clamp(min=torch.finfo(torch.float64).tiny)
    found[:, 2] = scale.log().clamp(-LOG_RANGE, LOG_RANGE)
    found[:, 3] = dead_energy(white, by)
    octave = torch.log2((found[:, 0] / by.alive).clamp(min=2.0 ** OCTAVES[0]))
    place = ((octave - OCTAVES[0]) * BINS_PER_OCTAVE).floor().long().clamp(0, BINS - 1)
    found[:, columns.tails].scatter_(1, place[:, None], 1.0)
    found[:, columns.first] = alive
    found[:, columns.second] = squares
    return found


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
