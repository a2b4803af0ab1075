"""How large entries are, and which factor lies between a table and what enters a model."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.geometry.norms import row_norms

__all__ = ["Factor", "factor_between", "factors_of_root", "root_mean_square"]

CHUNK = 4096


class Factor(NamedTuple):
    """A factor between two sets of differences.

    Args:
        value: the factor; the sign says whether directions agree.
        residual: share of what enters that the factor does not explain, 0 where it is a plain multiple.
    """

    value: float
    residual: float


def root_mean_square(rows: Tensor) -> float | None:
    """Return the root mean square entry, `√(Σ x² / (n D))`, of the n rows that are finite and not zero.

    Shape: (N, D) -> number; `None` where no row is left.

    Example:
        >>> root_mean_square(torch.tensor([[0.0, 0.0], [3.0, 4.0]])) == 12.5**0.5
        True
    """
    squares, number = 0.0, 0
    for part in rows.detach().split(CHUNK):
        norms = row_norms(part)
        sound = norms[norms.isfinite() & (norms > 0)]
        squares += float(sound.square().sum())
        number += len(sound)
    return (squares / (number * rows.shape[1])) ** 0.5 if number else None


def factors_of_root(factor: float | None, dimension: int) -> float | None:
    """Return how many factors √D a factor is: `ln f / ln √D`, 0 for 1, 1 for √D, 2 for D.

    Shape: number -> number; `None` where the factor is not a positive number, or D = 1.

    Example:
        >>> factors_of_root(8.0, 64), factors_of_root(64.0, 64), factors_of_root(0.0, 64)
        (1.0, 2.0, None)
    """
    if factor is None or dimension < 2 or not math.isfinite(factor) or factor <= 0:
        return None
    return math.log(factor) / math.log(dimension**0.5)


def factor_between(entering: Tensor, rows: Tensor) -> Factor | None:
    """Return by which factor rows of a table were multiplied before something alike was added to all of them.

    `x_i = f e_i + p` with one p for all: over differences from the mean, least squares give `f = <x, e> / <e, e>`, and
    the residual is `‖x - f e‖ / ‖x‖`. It is 0 where nothing else happens, and large behind a normalisation.

    Shape: (N, D), (N, D) -> number; `None` where shapes differ, rows do not differ, or numbers are not finite.

    Example:
        >>> rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
        >>> found = factor_between(3 * rows + 0.5, rows)
        >>> round(found.value, 4), found.residual < 1e-6
        (3.0, True)
    """
    if entering.shape != rows.shape or len(rows) < 2:
        return None
    x, e = (part.double() - part.double().mean(0) for part in (entering, rows))
    square = float(e.square().sum())
    spread = float(torch.linalg.vector_norm(x))
    if not (math.isfinite(square) and math.isfinite(spread) and square > 0 and spread > 0):
        return None
    value = float((x * e).sum()) / square
    return Factor(value, float(torch.linalg.vector_norm(x - value * e)) / spread)
