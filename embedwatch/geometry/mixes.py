"""Mixes: whether two streams of labels have the same shares, and how far these are apart."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.geometry.comparison import LEAST_BLOCKS, LENGTHS, UNIT
from embedwatch.geometry.permutation import block_labels, seam
from embedwatch.geometry.persistence import cell_decay_length

__all__ = ["MOST_BLOCKS", "blocks_of_labels", "g_statistics", "mix_p_value", "total_variation"]

MOST_BLOCKS = 256
"""Of one side; longer streams have longer blocks."""
TIE = 1e-9
AT_ONCE = 256
"""Labellings that are counted together."""


def total_variation(left: Tensor, right: Tensor) -> float:
    """Return the share of rows that would have to change their label, `½ Σ |p - q|`, from 0 to 1.

    Shape: counts (S,) of each side.

    Example:
        >>> total_variation(torch.tensor([50, 50]), torch.tensor([75, 25]))
        0.25
    """
    shares = [counts.double() / counts.sum().clamp(min=1) for counts in (left, right)]
    return float((shares[0] - shares[1]).abs().sum()) / 2


def blocks_of_labels(labels: Tensor, groups: int, size: int) -> Tensor:
    """Return how often each label is in each block of so many consecutive rows; a rest of less than half a block goes.

    Shape: labels (N,) int64 in order -> (blocks, groups) float64.
    """
    blocks = (len(labels) + size // 2) // size
    kept = labels[: blocks * size]
    found = torch.zeros(blocks * groups, dtype=torch.float64)
    places = torch.arange(len(kept)) // size * groups + kept
    return found.index_add_(0, places, torch.ones(len(kept), dtype=torch.float64)).reshape(blocks, groups)


def g_statistics(counts: Tensor, labels: Tensor) -> Tensor:
    """Return `G = 2 Σ O ln(O / E)` of the table label × side, for each labelling of the blocks.

    Shape: counts (blocks, S), labels (P, blocks) -> (P,).

    References:
        Woolf 1957, "The log likelihood ratio test (the G-test)", Annals of Human Genetics 21.
    """
    whole = counts.sum(0)  # (S,)
    total, found = float(whole.sum()), []
    for part in labels.split(AT_ONCE):
        right = part @ counts  # (P, S)
        sides = torch.stack([whole - right, right], 1)  # (P, 2, S)
        expected = sides.sum(2, keepdim=True) * whole / total
        found.append(2 * torch.special.xlogy(sides, sides / expected.clamp(min=TIE)).sum((1, 2)))
    return torch.cat(found)


def mix_p_value(
    left: Tensor, right: Tensor, groups: int, *, permutations: int, seed: int
) -> tuple[float | None, float]:
    """Return how likely so large a G is where both streams have one mix, and for how many rows a stream keeps a label.

    Blocks of rows, five times as long as a label lasts, change sides, so that a stream that keeps to a label for a
    while is no change of the mix. `None` with fewer than ten blocks on a side.

    Shape: labels (N,) and (M,) int64, in order.

    Example:
        >>> labels = torch.randint(0, 3, (4_000,), generator=torch.Generator().manual_seed(0))
        >>> mix_p_value(labels[:2_000], labels[2_000:], 3, permutations=99, seed=0)[0] > 0.05
        True
    """
    length = max(cell_decay_length(labels) for labels in (left, right))
    longest = max(len(left), len(right))
    size = max(UNIT, math.ceil(LENGTHS * length) if length > 1 else 0, math.ceil(longest / MOST_BLOCKS))
    sides = [blocks_of_labels(labels, groups, size) for labels in (left, right)]
    if min(len(side) for side in sides) < LEAST_BLOCKS:
        return None, length
    chosen = block_labels(len(sides[0]), len(sides[1]), permutations, seed=seed)
    found = g_statistics(torch.cat(sides), chosen)
    true = float(found[0]) * seam(length, size) ** 2
    return (1 + int((found[1:] >= true - TIE * abs(true)).sum())) / len(found), length
