"""The yardstick: maximum mean discrepancy with all pairs and an exact permutation of independent rows."""

from __future__ import annotations

import torch
from torch import Tensor

PERMUTATIONS = 499


def kernel_matrix(rows: Tensor) -> Tensor:
    """Return `exp(-‖x - y‖² / (2 σ²))` of all pairs, σ the median distance, with zeros on the diagonal. (N, N)."""
    squares = torch.cdist(rows, rows, compute_mode="use_mm_for_euclid_dist").square_()
    middle = squares[torch.triu_indices(len(rows), len(rows), 1).unbind()].median()
    kernel = squares.mul_(-0.5 / float(middle.clamp(min=torch.finfo(rows.dtype).tiny))).exp_()
    return kernel.fill_diagonal_(0)


def discrepancies(kernel: Tensor, labels: Tensor) -> Tensor:
    """Return the unbiased estimate of MMD² for each labelling.

    `Σ_{i≠j} k(x_i, x_j) / (n (n - 1)) + Σ_{i≠j} k(y_i, y_j) / (m (m - 1)) - 2 Σ k(x_i, y_j) / (n m)`

    Shape: (N, N) with zeros on the diagonal, (P, N) of zeros and ones with as many ones in each row -> (P,).
    """
    m = float(labels[0].sum())
    n = len(kernel) - m
    reached = labels @ kernel  # (P, N)
    right = (reached * labels).sum(1)
    cross = reached.sum(1) - right
    left = kernel.sum() - 2 * cross - right
    return left / (n * (n - 1)) + right / (m * (m - 1)) - 2 * cross / (n * m)


def exact_p_value(reference: Tensor, window: Tensor, *, seed: int, permutations: int = PERMUTATIONS) -> float:
    """Return how often a permutation of all rows gives as large a discrepancy, `(1 + #{as large}) / (1 + P)`.

    References:
        Gretton, Borgwardt, Rasch, Schölkopf & Smola 2012, "A kernel two-sample test", equation 3.

    Example:
        >>> rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
        >>> exact_p_value(rows[:100], rows[100:] + 1, seed=0, permutations=99)
        0.01
    """
    kernel = kernel_matrix(torch.cat([reference, window]))
    generator = torch.Generator().manual_seed(seed)
    true = torch.zeros(len(kernel))
    true[len(reference) :] = 1
    orders = torch.rand(permutations, len(kernel), generator=generator).argsort(1)
    found = discrepancies(kernel, torch.cat([true[None], true[orders]]))
    return (1 + int((found[1:] >= found[0]).sum())) / (1 + permutations)
