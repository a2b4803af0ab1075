"""What a graph of nearest neighbours tells: hubs and intrinsic dimension."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["dimension_mle", "dimension_two_nn", "occurrences", "robin_hood", "skewness"]


RESOLUTION = 1e-5
"""Unit rows in float32 are not told apart below this distance."""


def occurrences(neighbours: Tensor, count: int) -> Tensor:
    """Return N_k: how often each row is among the k nearest of another.

    Shape: (N, k) int64 -> (count,) int64.
    """
    return torch.bincount(neighbours.reshape(-1), minlength=count)


def skewness(values: Tensor) -> float | None:
    """Return the skewness `E (v - μ)³ / σ³`; of N_k it is the hubness of Radovanović et al. 2010 (JMLR 11, eq. 1).

    Shape: (N,) -> number; `None` if all are equal.
    """
    centred = values.double() - values.double().mean()
    spread = centred.square().mean()
    return float(centred.pow(3).mean() / spread**1.5) if spread > 0 else None


def robin_hood(values: Tensor) -> float | None:
    """Return the Robin Hood index `Σ |v - μ| / (2 Σ v)`: the share that would have to be handed over to make all equal.

    Of N_k it is a measure of hubness that one extreme hub cannot dominate (Feldbauer, Leodolter, Plant & Flexer
    2018, "Fast approximate hubness reduction for large high-dimensional data").

    Shape: (N,) -> number in [0, 1); `None` if all are zero.

    Example:
        >>> robin_hood(torch.tensor([2, 0]))
        0.5
    """
    wide = values.double()
    total = wide.sum()
    return float((wide - wide.mean()).abs().sum() / (2 * total)) if total > 0 else None


def dimension_mle(distances: Tensor) -> float | None:
    """Return the maximum-likelihood intrinsic dimension from the distances to the k nearest neighbours, ascending.

    `1 / mean_i [ 1/(k-1) Σ_{j<k} log(r_ik / r_ij) ]` (Levina & Bickel 2004, eq. 8, with the inverses averaged as in
    MacKay & Ghahramani 2005). Rows with a neighbour nearer than 10⁻⁵ are left out:
    twins say nothing about dimension.

    Shape: (N, k) -> number > 0; `None` for fewer than two neighbours or rows.
    """
    if distances.shape[1] < 2:
        return None
    apart = distances[distances[:, 0] > RESOLUTION].double()
    if len(apart) < 2:
        return None
    inverse = torch.log(apart[:, -1:] / apart[:, :-1]).mean(1)  # (N,)
    mean = float(inverse.mean())
    return 1.0 / mean if mean > 0 else None


def dimension_two_nn(distances: Tensor, *, discard: float = 0.1) -> float | None:
    """Return the intrinsic dimension from the ratio μ of the two nearest distances.

    A line through the origin is fitted to `-log(1 - F(μ))` over `log μ`, without the largest tenth of the ratios
    Twins are left out (Facco, d'Errico, Rodriguez & Laio 2017, Scientific Reports 7:12140, eq. 5).

    Shape: (N, k ≥ 2) -> number > 0; `None` for fewer than two neighbours or too few rows.
    """
    if distances.shape[1] < 2:
        return None
    apart = distances[distances[:, 0] > RESOLUTION].double()
    count = len(apart)
    kept = int(count * (1 - discard))
    if kept < 2:
        return None
    ratio = torch.sort(apart[:, 1] / apart[:, 0]).values[:kept].log()
    rank = torch.arange(kept, dtype=torch.float64) / count
    level = -torch.log1p(-rank)
    square = float(ratio.square().sum())
    return float((ratio * level).sum()) / square if square > 0 else None
