"""Permutation of blocks: how rare a difference would be if the labels of the blocks did not matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = [
    "FIRST",
    "block_labels",
    "differences_p_value",
    "family_p_value",
    "label_differences",
    "seam",
    "staged_p_values",
    "weighted_p_value",
]

FIRST, PLAIN = 99, 0.1
"""Permutations that are tried first, and the p-value of these above which chance is plain."""
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


def staged_p_values(
    families: Mapping[str, Callable[[Tensor], float]], left: int, right: int, permutations: int, *, seed: int
) -> dict[str, float]:
    """Return p-values of a few permutations where those are above 0.1, else of all of them.

    They hold: at a level up to 0.1 the latter alone count, and above it the former are no smaller than chance allows.
    Nine in ten healthy windows need no more than the few (Besag & Clifford 1991, "Sequential Monte Carlo p-values").

    Args:
        families: what gives the p-value of each from labels as `block_labels` makes them.
        left: how many blocks are on the left.
        right: how many blocks are on the right.
        permutations: all of them.
        seed: of the permutations.

    Example:
        >>> staged_p_values({"a": lambda labels: 0.5 if len(labels) < 200 else 0.01}, 10, 10, 999, seed=0)
        {'a': 0.5}
    """
    found: dict[str, float] = {}
    for count in sorted({min(FIRST, permutations), permutations}):
        asked = [name for name in families if found.get(name, 0) <= PLAIN]
        labels = block_labels(left, right, count if asked else 0, seed=seed)
        found |= {name: families[name](labels) for name in asked}
    return found


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
    return _largest_p_value(((statistics - others.mean(0)) / spread)[:, moving])


def differences_p_value(*, either: Tensor, more: Tensor, rounding: Tensor | None = None) -> float:
    """Return the p-value of the largest of several differences of means, each in units of its spread.

    Differences that count in both directions are taken without their sign; of those that count in one, a deficit is
    none. Both in units of the spread of the signed difference, 3 is about as rare in the one as in the other: were the
    sizes put in units of their own spread, which is smaller, they would crowd the others out.

    Args:
        either: differences that count in both directions, (1 + P, S), the true labelling first.
        more: differences that count where the right has more, (1 + P, T).
        rounding: what each of `either` may differ by for nothing, (S,).
    """
    sizes = either.abs() if rounding is None else (either.abs() - rounding).clamp(min=0)
    spread = torch.cat([either, more], 1)[1:].std(0)
    moving = spread > 0
    if not bool(moving.any()):
        return 1.0
    return _largest_p_value((torch.cat([sizes, more], 1) / spread)[:, moving])


def _largest_p_value(units: Tensor) -> float:
    largest = units.amax(1)
    as_large = largest[1:] >= largest[0] - TIE * abs(float(largest[0]))
    return (1 + int(as_large.sum())) / len(units)


def weighted_p_value(p_values: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the p-value of several families together, `min(1, min_f p_f Σ w / w_f)`: Bonferroni with weights.

    The sum is over the families that have a p-value: which could be asked must not depend on what they would say. It
    holds whatever the dependence between families (Holm 1979; Genovese, Roeder & Wasserman 2006, "False discovery
    control with p-value weighting").

    Example:
        >>> weighted_p_value({"content": 0.01, "shift": 0.5}, {"content": 2, "shift": 1, "geometry": 1})
        0.015
    """
    total = sum(weights[name] for name in p_values)
    return min(1.0, min((value * total / weights[name] for name, value in p_values.items()), default=1.0))
