"""The calibrated comparison of two streams of rows from sums over their blocks: how surely they differ.

Fitted on one part of the reference, calibrated on another: a map that was fitted on the rows that calibrate it finds
every fresh row strange. Blocks are longer than rows resemble each other; the difference that was observed is compared
with those of the same blocks under permuted labels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.blocks import Blocks, Columns, joined
from embedwatch.geometry.permutation import (
    differences_p_value,
    family_p_value,
    label_differences,
    seam,
    staged_p_values,
)
from embedwatch.geometry.persistence import steps_together
from embedwatch.geometry.whitening import Whitening

__all__ = [
    "LEADING",
    "LEAST_BLOCKS",
    "LENGTHS",
    "UNIT",
    "WEIGHTS",
    "Paired",
    "Side",
    "compare_blocks",
    "pair",
]

UNIT = 10
"""Rows of a block where rows are independent."""
LENGTHS = 5
"""Decay lengths of a block where they are not."""
LEAST_BLOCKS = 10
"""Blocks of each side without which nothing is said."""
WEIGHTS = {"content": 2, "shift": 1, "geometry": 1, "local": 2}
"""Parts of the level that each family has; what cannot be asked leaves its part to the others."""
LEADING = 16
"""Directions of largest variance in which persistence is looked for."""
TAILS = (0.05, 0.025, 0.01)
"""Shares of all rows beyond the thresholds of tails."""
NORM_ROUNDING = 1e-3
"""A mean logarithm of norms that differs by less is rounding of half precision."""
FLOOR = 1e-12


class Side(NamedTuple):
    """One stream.

    Args:
        blocks: their sums.
        size: row numbers that a block spans.
        length: decay length of its rows.
        fourths: `Σ u⁴` over all its rows, (A,).
    """

    blocks: Blocks
    size: int
    length: float
    fourths: Tensor


class Paired(NamedTuple):
    """Two streams in blocks of one size, long enough for both.

    Args:
        left, right: the blocks; those that are less than half full are left out.
        rows: of a usual block.
        length: the longer decay length.
        span: row numbers that a block must span, were rows not in blocks yet.
    """

    left: Blocks
    right: Blocks
    rows: float
    length: float
    span: int

    @property
    def fewest(self) -> int:
        """Blocks of the side that has fewer."""
        return min(len(self.left.keys), len(self.right.keys))


def pair(left: Side, right: Side, columns: Columns) -> Paired:
    """Return both streams in blocks of the size that they need.

    Ten rows where rows are independent, else five decay lengths; and twice as many as long as the means of neighbouring
    blocks still resemble each other, as they do in a stream that changes more slowly than its first rows show.
    """
    size = max(left.size, right.size)
    first, second = (joined(side.blocks, size // side.size) for side in (left, right))
    length = max(left.length, right.length)
    held = min(_usual(first), _usual(second))
    needed = max(UNIT, LENGTHS * length if length > 1 else UNIT)
    times = max(1, math.ceil(needed / held)) if held else 1
    while True:
        span = math.ceil(needed * size / held) if held else size
        found = Paired(_full(joined(first, times)), _full(joined(second, times)), held * times, length, span)
        sides = (found.left, found.right)
        if found.fewest < LEAST_BLOCKS or not any(steps_together(_leading(side, columns)) for side in sides):
            return found
        times *= 2
        needed = held * times


def _usual(blocks: Blocks) -> float:
    return float(blocks.rows.double().median()) if len(blocks.rows) else 0.0


def _full(blocks: Blocks) -> Blocks:
    """Leave out blocks that are less than half full: the first and the last of a stream, and gaps."""
    kept = 2 * blocks.rows >= _usual(blocks)
    return Blocks(blocks.keys[kept], blocks.rows[kept], blocks.sums[kept])


def _leading(blocks: Blocks, columns: Columns) -> Tensor:
    return blocks.sums[:, columns.first][:, :LEADING] / blocks.rows[:, None]


def compare_blocks(
    paired: Paired, by: Whitening, fourths: Tensor, rows: int, *, permutations: int, seed: int, damping: float = 1.0
) -> dict[str, float]:
    """Return p-values of three families of differences; none where blocks are too few.

    - content: mean q, mean distance from the centre, mean norm, and how many more rows lie beyond the pooled 95, 97.5
      and 99 % of q and of m;
    - shift: the difference of the means, in the space and whitened;
    - geometry: the differences of second moments over their spread, and of the energy in dead directions.

    Thresholds are pooled over both sides: one that is fixed on the reference alone finds its own error. Foreign rows
    lie beyond them on the right; that the left has more there is told by the means.

    Args:
        paired: the blocks.
        by: the map that was fitted on other rows.
        fourths: `Σ u⁴` over all rows of both sides, (A,).
        rows: how many rows that are.
        permutations: how many labellings; p-values are no smaller than 1 / (1 + permutations). Fewer where chance is
            plain.
        seed: of the permutations.
        damping: shortens what was observed, for rows that repeat.

    References:
        Gretton et al. 2012 for two-sample tests by permutation; Chwialkowski, Sejdinovic & Gretton 2014 (arXiv
        1408.5404) for what dependence does to them; Ledoit & Wolf 2004 for the shrinkage of the map.
    """
    if paired.fewest < LEAST_BLOCKS:
        return {}
    left, right = paired.left, paired.right
    columns = Columns(by.alive)
    sums = torch.cat([left.sums, right.sums])
    count = torch.cat([left.rows, right.rows]).double()
    beyond = torch.cat([_beyond(sums, histogram) for histogram in (columns.tails, columns.half_tails)], 1)
    factor = seam(paired.length, paired.rows) * damping
    seconds = sums[:, columns.second].sum(0) / count.sum()
    spread = (fourths / max(1, rows) - seconds.square()).clamp(min=FLOOR)
    rounding = torch.tensor([0, 0, NORM_ROUNDING], dtype=torch.float64)

    def differences(part: Tensor, labels: Tensor) -> Tensor:
        found = label_differences(part, count, labels)
        found[0] *= factor
        return found

    def content(labels: Tensor) -> float:
        either, more = differences(sums[:, :3], labels), differences(beyond, labels)
        return differences_p_value(either=either, more=more, rounding=rounding)

    def shift(labels: Tensor) -> float:
        squares = differences(sums[:, columns.first], labels).square()
        moved = torch.stack([squares @ by.variances[: by.alive], squares.sum(1)], 1)
        return family_p_value(moved.pow(1 / 3))

    def geometry(labels: Tensor) -> float:
        turned = (differences(sums[:, columns.second], labels).square() / spread).sum(1, keepdim=True)
        dead = differences(sums[:, 3:4], labels).abs()
        return family_p_value(torch.cat([turned.pow(1 / 3), dead], 1))

    # the cube root of what is skewed is nearly normal (Wilson & Hilferty 1931)
    families = {"content": content, "shift": shift, "geometry": geometry}
    return staged_p_values(families, len(left.keys), len(right.keys), permutations, seed=seed)


def _beyond(sums: Tensor, histogram: slice) -> Tensor:
    """Return how many rows of each block lie beyond the thresholds that hold the tail shares of all. (n, 3)."""
    tails = sums[:, histogram].flip(1).cumsum(1).flip(1)  # rows at or above each lower edge
    shares = tails.sum(0) / tails[:, 0].sum()
    places = [int((shares - share).abs().argmin()) for share in TAILS]
    return tails[:, places]
