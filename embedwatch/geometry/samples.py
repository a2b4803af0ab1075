"""What samples of two streams tell beyond sums over their blocks: neighbourhoods, and rows that repeat."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.comparison import LEAST_BLOCKS, Paired
from embedwatch.geometry.local_scan import local_scan
from embedwatch.geometry.permutation import seam
from embedwatch.geometry.repeats import Contents, damping, distinct, repetition

__all__ = ["Sample", "Scan", "repeats_damping", "scan_samples"]


class Sample(NamedTuple):
    """Some rows of a stream.

    Args:
        numbers: of the rows, (N,) int64.
        content: hash of each, (N,) int64.
        rows: the rows, (N, D), or none where they may not be kept.
        run: consecutive numbers of which all rows are here; `None` where all rows of the stream are.
    """

    numbers: Tensor
    content: Tensor
    rows: Tensor
    run: int | None

    @classmethod
    def joined(cls, first: Sample, second: Sample) -> Sample:
        """Return the rows of both, which are parts of one stream; without rows where one lacks them."""
        if not len(first.numbers):
            return second
        rows = [part.rows for part in (first, second)]
        there = all(len(part.rows) == len(part.numbers) for part in (first, second))
        run = first.run if second.run is None else second.run
        numbers, content = torch.cat([first.numbers, second.numbers]), torch.cat([first.content, second.content])
        return cls(numbers, content, torch.cat(rows) if there and len(numbers) else second.rows[:0], run)

    def where(self, kept: Tensor) -> Sample:
        """Return some of the rows."""
        rows = self.rows[kept] if len(self.rows) else self.rows
        return self._replace(numbers=self.numbers[kept], content=self.content[kept], rows=rows)

    def contents(self, span: int) -> Contents:
        """Return what the rows are, and their blocks."""
        return Contents(self.content, torch.div(self.numbers, span, rounding_mode="floor"))

    def holds(self, span: int) -> bool:
        """Return whether rows are here, and blocks of so many numbers whole."""
        return bool(len(self.rows)) and (self.run is None or span <= self.run)


class Scan(NamedTuple):
    """What the local scan found.

    Args:
        p_value: of regions with more, or fewer, rows of the right than their share.
        numbers: of the rows of the right that were seen, (n,).
        crowded: how far the right outnumbers its share around each, in standard deviations, (n,).
        foreign: share of the right that the left cannot explain in its fullest region, at least.
    """

    p_value: float
    numbers: Tensor
    crowded: Tensor
    foreign: float

    def most_crowded(self, count: int) -> list[tuple[int, float]]:
        """Return the rows around which the right outnumbers its share most, with by how much."""
        order = torch.argsort(self.crowded, descending=True, stable=True)[:count]
        return list(zip(self.numbers[order].tolist(), self.crowded[order].tolist(), strict=True))


def repeats_damping(left: Sample, right: Sample, paired: Paired) -> float:
    """Return how far repeats shorten what was observed: a stream that says the same again says nothing new."""
    rows = int(paired.left.rows.sum()), int(paired.right.rows.sum())
    return damping(*repetition(left.contents(paired.span), right.contents(paired.span), rows), rows)


def scan_samples(left: Sample, right: Sample, paired: Paired, *, permutations: int, seed: int) -> Scan | None:
    """Return what the local scan finds among the distinct rows of both samples.

    A content that comes more than once keeps one of its rows, by chance. `None` where rows are not kept, where blocks
    are longer than the runs that were sampled, or fewer than ten on a side.
    """
    if not (left.holds(paired.span) and right.holds(paired.span)):
        return None
    kept = distinct(torch.cat([left.content, right.content]), seed=seed)
    parts = kept[kept < len(left.content)], kept[kept >= len(left.content)] - len(left.content)
    rows: list[Tensor] = []
    blocks: list[Tensor] = []
    counts: list[int] = []
    for sample, places in zip((left, right), parts, strict=True):
        key = sample.contents(paired.span).blocks[places]
        _, block, size = torch.unique(key, return_inverse=True, return_counts=True)
        full = 2 * size >= size.double().median() if len(size) else size > 0
        renumbered = torch.cumsum(full.long(), 0) - 1
        rows.append(places[full[block]])
        blocks.append(renumbered[block][full[block]] + sum(counts))
        counts.append(int(full.sum()))
    if min(counts) < LEAST_BLOCKS:
        return None
    pooled = torch.cat([left.rows[rows[0]], right.rows[rows[1]]]).float()
    found = local_scan(
        pooled,
        torch.cat(blocks),
        (counts[0], counts[1]),
        permutations=permutations,
        seed=seed,
        factor=seam(paired.length, paired.rows),
    )
    return Scan(found.p_value, right.numbers[rows[1]], found.crowded[len(rows[0]) :], found.foreign)
