"""The local scan: whether any region holds more, or fewer, rows of one side than its share."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from embedwatch.geometry.permutation import FIRST, family_p_value, staged_p_values

__all__ = ["LocalScan", "local_scan"]

SIZES = (33, 50, 67)
"""Rows of a usual region, in the partitions of each kind."""
POWERS = 2
"""Times that directions are multiplied by the squared covariance, so that the leading ones win."""
FARTHEST = 3.0
"""Rows are cut at so many times the median length: one alone must not be a direction of its own."""
LABELLINGS = 128
"""Permutations whose excesses are held at a time."""
TINY = 1e-6
"""Root of the sum of squares below which a region is the same in all blocks but for rounding."""
SOME = 1_200
"""Rows from which leading directions are taken, drawn by chance from both sides."""
CAUTION = 1.0
"""Standard errors that are taken off a share of foreign rows."""
FOLDS = 5
"""Parts of the blocks, of which each measures what the others chose."""
UNLIKELY = 0.3
"""A p-value of a few permutations and partitions above which there is nothing to look for."""


class Effort(NamedTuple):
    """How closely is looked.

    Args:
        directions: of largest variance, in which rows are near or far: the others add noise to distances.
        times: partitions of each kind: where one cuts a topic in two, others do not.
        rows: rows on which a partition is fitted at most, drawn by chance from both sides.
        rounds: of k-means.
    """

    directions: int
    times: int
    rows: int
    rounds: int


QUICK = Effort(directions=48, times=3, rows=SOME, rounds=6)
FULL = Effort(directions=96, times=10, rows=4_096, rounds=12)


class Held(NamedTuple):
    """Rows in regions.

    Args:
        counts: rows of each block in each region of all partitions, (regions, blocks).
        places: the region of each row in each partition, (N, partitions).
        rows: of each block, (blocks,).
    """

    counts: Tensor
    places: Tensor
    rows: Tensor


class Share(NamedTuple):
    """A share of rows, and the variance of its error."""

    share: float
    variance: float


class LocalScan(NamedTuple):
    """What the scan found.

    Args:
        p_value: of new topics, lost topics and other mixtures together.
        crowded: z around each row: how far the right side outnumbers its share there, (N,).
        foreign: share of the right that the left cannot explain in its fullest region, at least.
    """

    p_value: float
    crowded: Tensor
    foreign: float


def _leading(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return rows without their mean in their leading directions, by subspace iteration.

    Shape: (N, D) -> (N, min(count, D)).
    """
    centred: Tensor = rows - rows.mean(0)
    lengths = centred.norm(dim=1, keepdim=True)
    centred *= (FARTHEST * lengths.median() / lengths.clamp(min=TINY)).clamp(max=1)
    if rows.shape[1] <= count:
        return centred
    some = centred[torch.randperm(len(centred), generator=generator)[:SOME]]
    covariance = some.T @ some / len(some)
    directions = torch.randn(rows.shape[1], count, generator=generator)
    for _ in range(POWERS):
        directions = torch.linalg.qr(covariance @ (covariance @ directions))[0]
    led: Tensor = centred @ directions
    return led


def _partitions(led: Tensor, effort: Effort, generator: torch.Generator) -> list[Tensor]:
    """Return the region of each row in several partitions; none where rows are few. (N, d) -> list of (N,) int64."""
    fitted = led[torch.randperm(len(led), generator=generator)[: effort.rows]]
    counts = sorted({len(led) // size for size in SIZES} - {0, 1})
    return [_cells(led, fitted, count, effort.rounds, generator) for count in counts for _ in range(effort.times)]


def _cells(rows: Tensor, fitted: Tensor, count: int, rounds: int, generator: torch.Generator) -> Tensor:
    """Return the nearest of some centres of k-means, which starts at random rows. (N, d), (M, d) -> (N,)."""
    centres = fitted[torch.randperm(len(fitted), generator=generator)[:count]]
    for _ in range(rounds):
        near = _nearest(fitted, centres)
        size = torch.bincount(near, minlength=len(centres)).clamp(min=1)
        centres = torch.zeros_like(centres).index_add_(0, near, fitted) / size[:, None]
    return _nearest(rows, centres)


def _nearest(rows: Tensor, centres: Tensor) -> Tensor:
    return torch.addmm(centres.square().sum(1)[None], rows, centres.T, alpha=-2).argmin(1)


def local_scan(
    rows: Tensor, blocks: Tensor, sides: tuple[int, int], *, permutations: int, seed: int, factor: float = 1.0
) -> LocalScan:
    """Compare two sides around each row: what a few rows in a place of their own do not hide from.

    The rows of both sides, their labels unknown, are cut into regions by k-means, several times. In each region the
    rows of the right are counted beside its share, in units of how that varies under permuted labels; around a row,
    these are added up over its regions and put in units again. Of all rows, the largest (a new topic), the smallest (a
    lost one) and the mean square (another mixture) are permuted by blocks. A quick look comes first: where it finds a
    p-value above 0.3 that is given, else that of a close look, which holds since at any level that matters only the
    latter counts.

    Args:
        rows: of both sides, (N, D), those of the left first, without repeats: repeats are a region.
        blocks: block of each row, (N,), those of the left first.
        sides: how many blocks are on the left and on the right.
        permutations: how many labellings; fewer where chance is plain.
        seed: of the permutations and the regions.
        factor: shortens what was observed, see `seam`.

    References:
        Kulldorff 1997, "A spatial scan statistic", for the largest; Strehl & Ghosh 2002, "Cluster ensembles", for
        agreement of partitions as nearness; Besag & Clifford 1991 for looks that end early.
    """
    left, right = sides
    generator = torch.Generator().manual_seed(seed)
    spread = (left * right / ((left + right) * (left + right - 1))) ** 0.5
    for effort, count in ((QUICK, min(FIRST, permutations)), (FULL, permutations)):
        led = _leading(rows, effort.directions, generator)
        held = _held(_partitions(led, effort, generator), blocks, left + right)
        around = _around(held) / spread
        families = {"local": partial(_p_value, around, factor)}
        found = staged_p_values(families, left, right, count, seed=seed)["local"]
        if found > UNLIKELY:
            break
    return LocalScan(found, around[left:].sum(0), _foreign(held, left))


def _p_value(around: Tensor, factor: float, labels: Tensor) -> float:
    found: list[Tensor] = []
    for part in labels.float().split(LABELLINGS):
        excess = part @ around  # (C, N)
        found.append(torch.stack([excess.amax(1), -excess.amin(1), excess.square().mean(1)], 1))
    statistics = torch.cat(found).double()
    typical = statistics[1:].mean(0)
    statistics[0] = typical + factor * (statistics[0] - typical)
    return family_p_value(statistics)


def _held(cells: list[Tensor], blocks: Tensor, count: int) -> Held:
    """Return how many rows of each block lie in each region, and the regions of each row."""
    found: list[Tensor] = []
    places: list[Tensor] = []
    for cell in cells:
        regions = int(cell.max()) + 1
        found.append(torch.bincount(cell * count + blocks, minlength=regions * count).reshape(regions, count).float())
        places.append(cell + sum(map(len, found[:-1])))
    rows = torch.bincount(blocks, minlength=count).float()
    if not found:
        return Held(torch.zeros(1, count), torch.zeros(len(blocks), 1, dtype=torch.int64), rows)
    return Held(torch.cat(found), torch.stack(places, 1), rows)


def _beyond(held: Held) -> Tensor:
    """Return by how much each block is in each region beyond the share of the region, in units. (regions, blocks)."""
    share = held.counts.sum(1, keepdim=True) / held.rows.sum()
    return _in_units(held.counts - share * held.rows)


def _around(held: Held) -> Tensor:
    """Return by how much each block is around each row, beyond its share, in units. (blocks, N).

    Around a row are the rows of its region, in each partition. Weights of blocks add up to 0, and their squares to 1;
    to 0 where a region is spread over blocks as all rows are.
    """
    return _in_units(embedding_bag(held.places, _beyond(held), mode="sum")).T.contiguous()


def _foreign(held: Held, left: int) -> float:
    """Return the share of the right that the left cannot explain.

    The region that is fullest of the right in four fifths of the blocks is measured in the others, so that what is
    chosen for its size is not too large; five times, the mean. `π ≥ (S_R - S_L) / (1 - S_L)` for the shares S of any
    region, less a standard error.
    """
    place = torch.arange(held.counts.shape[1])
    more, squares = 0.0, 0.0
    for fold in range(FOLDS):
        other = place % FOLDS == fold
        seen = Held(held.counts[:, ~other], held.places, held.rows[~other])
        fullest = held.counts[int(_beyond(seen)[:, place[~other] >= left].sum(1).argmax())]
        before, now = (_share(fullest[other & side], held.rows[other & side]) for side in (place < left, place >= left))
        if before.share < 1:
            more += (now.share - before.share) / (1 - before.share) / FOLDS
            squares += (before.variance + now.variance) / FOLDS**2
    return max(0.0, more - CAUTION * math.sqrt(squares))


def _share(counts: Tensor, rows: Tensor) -> Share:
    """Return the share of rows that are counted, by blocks."""
    total = rows.sum().clamp(min=1)
    share = counts.sum() / total
    return Share(float(share), float((counts - share * rows).square().sum() / total.square()))


def _in_units(weights: Tensor) -> Tensor:
    length = weights.norm(dim=1, keepdim=True)
    return torch.where(length > TINY, weights / length.clamp(min=TINY), 0.0)
