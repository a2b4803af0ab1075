"""Repeats: rows that are equal bit for bit count once where rows are counted as independent."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Contents", "damping", "distinct", "repetition"]

FLOOR = 1e-30


class Contents(NamedTuple):
    """What some rows of a stream are.

    Args:
        content: hash of each row, (N,) int64.
        blocks: block of each row, (N,) int64.
    """

    content: Tensor
    blocks: Tensor


def repetition(left: Contents, right: Contents, rows: tuple[int, int]) -> tuple[float, float]:
    """Return by how much repeats swell the variance of the mean of so many rows, on each side: 1 where there are none.

    `1 + n e q / (q_L + q_R)` with `e = max(0, q_L + q_R - 2 q')`, q the share of pairs of rows from two blocks of a
    side that are equal, and q' that of pairs from both sides. What is popular in both is equal by chance as often in
    either and across, so that nothing is left of it; what a stream says over and over by itself is no new evidence.

    Example:
        >>> once, blocks = torch.arange(100), torch.arange(1_000) // 10
        >>> others, again = Contents(torch.arange(1_000) + 500, blocks), Contents(once.repeat(10), blocks)
        >>> [round(swollen, 2) for swollen in repetition(others, again, (1_000, 1_000))]
        [1.0, 10.09]
    """
    alike = [_alike(side) for side in (left, right)]
    crossed = len(left.content) * len(right.content)
    popular = _crossings(left.content, right.content) / crossed if crossed else 0.0
    excess = max(0.0, sum(alike) - 2 * popular)
    share = excess / max(sum(alike), FLOOR)
    return 1 + rows[0] * share * alike[0], 1 + rows[1] * share * alike[1]


def damping(left: float, right: float, rows: tuple[int, int]) -> float:
    """Return the factor by which repetition shortens an observed difference of means.

    `√((1 / n_L + 1 / n_R) / (r_L / n_L + r_R / n_R))`, with r what `repetition` gives of each side.
    """
    before, after = (max(1, count) for count in rows)
    return math.sqrt((1 / before + 1 / after) / (left / before + right / after))


def distinct(content: Tensor, *, seed: int) -> Tensor:
    """Return one place of each content, by chance: which one must not depend on the side that it is on.

    Shape: (N,) -> (m,) int64, ascending.
    """
    order = torch.randperm(len(content), generator=torch.Generator().manual_seed(seed))
    _, inverse = torch.unique(content[order], return_inverse=True)
    places = torch.arange(len(content))
    first = torch.full((int(inverse.max()) + 1 if len(content) else 0,), len(content))
    first = first.scatter_reduce(0, inverse, places, reduce="amin")
    return torch.sort(order[first]).values


def _alike(side: Contents) -> float:
    """Return the share of pairs of rows from two blocks that are equal."""
    pairs = len(side.content) ** 2 - _squares(side.blocks)
    kinds, places = (torch.unique(part, return_inverse=True)[1] for part in side)
    within = _squares(kinds * (len(side.blocks) + 1) + places)
    return (_squares(side.content) - within) / pairs if pairs > 0 else 0.0


def _squares(values: Tensor) -> int:
    """Return the sum of squares of how often each value comes."""
    counts = torch.unique(values, return_counts=True)[1]
    return int(counts.square().sum())


def _crossings(left: Tensor, right: Tensor) -> int:
    """Return the number of pairs of the two that are equal."""
    values, places = torch.unique(torch.cat([left, right]), return_inverse=True)
    first, second = (torch.bincount(part, minlength=len(values)) for part in places.tensor_split([len(left)]))
    return int((first * second).sum())
