"""Permutation of blocks: how rare a difference would be if the labels of the blocks did not matter."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["block_labels", "family_p_value", "label_differences", "seam", "weighted_p_value"]

TIE = 1e-9
"""Relative difference below which two statistics are equal but for rounding."""


def block_labels(left: int, right: int, permutations: int, *, seed: int) -> Tensor:
    """Return which blocks are on the right: the true labels first, then random permutations of them.

    Shape: -> (1 + permutations, left + right) float64 of zeros and ones.
    """
    true = torch.zeros(left + right, dtype=torch.float64)
    true[left:] = 1
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(permutations, left + right, generator=generator).argsort(1)
    return torch.cat([true[None], true[orders]])


def label_differences(sums: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """Return the mean of the rows on the right minus that on the left, for each labelling of the blocks.

    Shape: sums (blocks, F), rows (blocks,), labels (P, blocks) -> (P, F).
    """
    right, right_rows = labels @ sums, labels @ rows
    return right / right_rows[:, None] - (sums.sum(0) - right) / (rows.sum() - right_rows)[:, None]


def seam(length: float, block: float) -> float:
    """Return the factor by which an observed difference is shortened, `√(1 - l / b)`.

    Neighbouring blocks of b rows still resemble each other at their seams where rows resemble each other for l, so that
    permuting them understates the variance by about l / b (Lahiri 2003, "Resampling methods for dependent data", for
    the bias of block methods). It is 1 for independent rows.
    """
    return math.sqrt(max(0.0, 1 - length / block)) if length > 1 else 1.0


def family_p_value(statistics: Tensor) -> float:
    """Return the p-value of the most extreme of several statistics, calibrated on the same permutations.

    Each statistic is put in units of its spread over the permutations; the largest is compared with the largest of each
    permutation, `(1 + #{as large}) / (1 + P)` (Westfall & Young 1993; Phipson & Smyth 2010 for the ones). Ranks instead
    of units would tie at the smallest p-value that P permutations know.

    Shape: (1 + P, S), the true labelling first -> number in [1 / (1 + P), 1].

    Example:
        >>> family_p_value(torch.tensor([[9.0], [1.0], [2.0], [3.0]]))
        0.25
    """
    others = statistics[1:]
    spread = others.std(0)
    moving = spread > 0
    if not bool(moving.any()):
        return 1.0
    units = ((statistics - others.mean(0)) / spread)[:, moving]
    largest = units.amax(1)
    as_large = largest[1:] >= largest[0] - TIE * abs(float(largest[0]))
    return (1 + int(as_large.sum())) / len(statistics)


def weighted_p_value(p_values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the p-value of several families together, `min(1, min_f p_f / w_f)`: Bonferroni with weights.

    Weights add up to at most 1; it holds whatever the dependence between families (Holm 1979; Genovese, Roeder &
    Wasserman 2006, "False discovery control with p-value weighting").

    Example:
        >>> weighted_p_value({"content": 0.01, "shift": 0.5}, {"content": 0.5, "shift": 0.25})
        0.02
    """
    return min(1.0, min((value / weights[name] for name, value in p_values.items()), default=1.0))
