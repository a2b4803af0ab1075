"""What a matrix drawn at random looks like: rows of one length, and a spectrum between two known edges."""

from __future__ import annotations

import math

from torch import Tensor

from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.spectrum import eigenvalues

__all__ = ["norm_spread", "spectrum_edge", "upper_edge"]


def norm_spread(rows: Tensor) -> float | None:
    """Return how far norms spread, over what they would among rows of independent Gaussian entries.

    `std(‖x‖) / mean(‖x‖)` over `1 / √(2 D)`, the spread of χ with D degrees of freedom for large D. Near 1 for a table
    as it was drawn, several for one that was trained.

    Shape: (N, D) -> number; `None` where fewer than two rows are finite and not zero.

    Example:
        >>> import torch
        >>> rows = torch.randn(4000, 64, generator=torch.Generator().manual_seed(0))
        >>> 0.9 < norm_spread(rows) < 1.1, norm_spread(rows * torch.rand(4000, 1)) > 5
        (True, True)
    """
    norms = row_norms(rows)
    sound = norms[norms.isfinite() & (norms > 0)]
    if len(sound) < 2:
        return None
    return float(sound.std() / sound.mean()) * math.sqrt(2 * rows.shape[1])


def upper_edge(rows: int, dimension: int) -> float:
    """Return the largest eigenvalue of a covariance of independent entries of variance 1: `(1 + √(D / n))²`.

    References: Marchenko & Pastur 1967; the largest one scatters about the edge by `n^-⅔` (Johnstone 2001).
    """
    return (1 + math.sqrt(dimension / rows)) ** 2


def spectrum_edge(rows: Tensor) -> float | None:
    """Return the largest eigenvalue of the rows' covariance over the edge of one of independent entries.

    Entries of any variance: eigenvalues are divided by their mean. Near 1 for a table as it was drawn; 6 in MiniLM, 51
    in SmolLM2.

    Shape: (N, D) -> number; `None` where fewer than two rows are finite and not zero, or all are alike.

    Example:
        >>> import torch
        >>> rows = torch.randn(4000, 32, generator=torch.Generator().manual_seed(0))
        >>> 0.9 < spectrum_edge(rows) < 1.1
        True
    """
    norms = row_norms(rows)
    sound = rows[norms.isfinite() & (norms > 0)].double()
    if len(sound) < 2:
        return None
    scaled = sound / sound.abs().max()
    centred = scaled - scaled.mean(0)
    values = eigenvalues(centred.T @ centred / len(centred))
    mean = float(values.mean())
    return float(values[0]) / (mean * upper_edge(len(sound), rows.shape[1])) if mean > 0 else None
