"""Maximum mean discrepancy from means of random features over blocks of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.geometry.blocks import Blocks
from embedwatch.geometry.distributions import chance

__all__ = ["OCTAVES", "discrepancy", "discrepancy_noise", "doubled_features"]

OCTAVES = 3
"""Bandwidths, each half of the one before."""


def doubled_features(rows: Tensor, frequencies: Tensor) -> Tensor:
    """Return cos and sin of `ω·x`, `2 ω·x` and `4 ω·x`, by doubling the angle.

    Shape: (N, D), (D, F) -> (N, 3, 2, F).
    """
    phase = rows @ frequencies.to(rows)
    cosine, sine = phase.cos(), phase.sin()
    found = []
    for _ in range(OCTAVES):
        found.append(torch.stack([cosine, sine], 1))
        cosine, sine = 2 * cosine.square() - 1, 2 * sine * cosine
    return torch.stack(found, 1)


def discrepancy(left: Blocks, right: Blocks) -> Tensor | None:
    """Return MMD² for each bandwidth, without bias also where rows of one block depend on one another.

    `mean k(x, x') + mean k(y, y') - 2 mean k(x, y)` with pairs of rows of different blocks (Gretton et al. 2012,
    eq. 3), each kernel the mean of `cos ω·(x - y)` over frequencies (Rahimi & Recht 2007).

    Shape: sums (n, 6 F) -> (3,) float64; `None` where a side has fewer than two blocks.
    """
    own = [_within(side) for side in (left, right)]
    if own[0] is None or own[1] is None:
        return None
    means = [side.sums.sum(0) / side.rows.sum() for side in (left, right)]
    return own[0] + own[1] - 2 * _kernels(means[0] * means[1])


def _within(side: Blocks) -> Tensor | None:
    rows = side.rows.double()
    pairs = float(rows.sum().square() - rows.square().sum())
    if pairs <= 0:
        return None
    squares = side.sums.sum(0).square() - side.sums.square().sum(0)
    return _kernels(squares) / pairs


def _kernels(products: Tensor) -> Tensor:
    """Return the sum over frequencies of products of features, over their number. (6 F,) -> (3,)."""
    found = products.view(OCTAVES, 2, -1)
    return found.sum((1, 2)) / found.shape[2]


def discrepancy_noise(side: Blocks, first: int, second: int) -> Tensor | None:
    """Return the standard deviation that MMD² has between two healthy samples of these sizes.

    `√(2 tr Σ²) (1/n + 1/m)` with Σ the covariance of a row's features as the scatter of block means shows it: rows that
    depend on one another within a block make it larger. The trace comes from products of different blocks.

    Shape: sums (n, 6 F) -> (4,): each bandwidth, and all together; `None` for fewer than three blocks.
    """
    count = len(side.keys)
    if count < 3:
        return None
    rows = side.rows.double()[:, None]
    centred = (side.sums - rows * (side.sums.sum(0) / rows.sum())) / rows.sqrt()  # (n, 6 F): variance of one row each
    parts = centred.view(count, OCTAVES, -1)
    grams = torch.einsum("iof,jof->oij", parts, parts) / (parts.shape[2] // 2)  # (3, n, n)
    grams = torch.cat([grams, grams.sum(0, keepdim=True)])
    apart = grams - torch.diag_embed(grams.diagonal(dim1=1, dim2=2))
    traces = apart.square().sum((1, 2)) / ((count - 1) * (count - 2))
    # what centring takes: products of different blocks lie below zero by a share of their own squares
    own = grams.diagonal(dim1=1, dim2=2).mean(1) / (count - 1)
    traces = (traces - own.square()).clamp(min=0)
    found: Tensor = (2 * traces).sqrt() * chance(first, second)
    return found if math.isfinite(float(found.sum())) else None
