"""What several faults have in common: pure functions on rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.geometry.unit_length import have_unit_length

__all__ = ["are_unit", "chosen", "kept_unit", "random_basis", "thinned", "topics_of", "turned"]


def are_unit(rows: Tensor) -> bool:
    """Return whether all rows have length 1."""
    return len(rows) > 0 and bool(have_unit_length(rows.norm(dim=1)).all())


def kept_unit(changed: Tensor, rows: Tensor) -> Tensor:
    """Return changed rows at length 1 where the rows were: normalisation comes last, and hides what it can."""
    return torch.nn.functional.normalize(changed, dim=1) if are_unit(rows) else changed


def chosen(rows: Tensor, generator: torch.Generator, share: float) -> Tensor:
    """Return which rows are hit: one at a random place in each stretch of 1 / share rows. Shape: (N, D) -> (N,) bool.

    Example:
        >>> int(chosen(torch.zeros(100, 2), torch.Generator().manual_seed(0), 0.05)[:20].sum())
        1
    """
    count = len(rows)
    wanted = max(1, round(share * count)) if count else 0
    edges = torch.linspace(0, count, wanted + 1, dtype=torch.float64)
    places = edges[:-1] + torch.rand(wanted, generator=generator, dtype=torch.float64) * edges.diff()
    found = torch.zeros(count, dtype=torch.bool)
    found[places.long().clamp(max=count - 1)] = True
    return found


def random_basis(dimension: int, generator: torch.Generator) -> Tensor:
    """Return a random orthogonal matrix, every one as likely (Stewart 1980). Shape: -> (D, D) float64."""
    drawn = torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    found: Tensor = basis * triangle.diagonal().sign()
    return found


def turned(rows: Tensor, generator: torch.Generator, degrees: float) -> Tensor:
    """Return rows turned by an angle in each of D / 2 random planes across one another. Shape: (N, D) -> (N, D)."""
    basis = random_basis(rows.shape[1], generator)
    found = rows.double() @ basis
    half, angle = rows.shape[1] // 2, math.radians(degrees)
    left, right = found[:, :half].clone(), found[:, half : 2 * half].clone()
    found[:, :half] = math.cos(angle) * left - math.sin(angle) * right
    found[:, half : 2 * half] = math.sin(angle) * left + math.cos(angle) * right
    return (found @ basis.T).to(rows.dtype)


def topics_of(rows: Tensor, centres: Tensor) -> Tensor:
    """Return the nearest centre of each row. Shape: (N, D), (K, D) -> (N,) int64."""
    return torch.cdist(rows.float(), centres.float()).argmin(1)


def thinned(rows: Tensor, spare: Tensor, stays: Tensor) -> Tensor:
    """Return as many rows as there were, of those that stay, in order, filled up from the spare ones.

    Args:
        rows: (N, D).
        spare: (S, D).
        stays: which of both stay, (N + S,) bool.
    """
    return torch.cat([rows, spare])[stays][: len(rows)]
