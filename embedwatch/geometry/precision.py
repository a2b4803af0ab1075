"""Which coarser number format rows come from, seen in the numbers themselves, whatever type they are stored in now."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["LEAST_WIDTH", "exact_values", "on_levels"]

LEVELS = 256
LEAST_WIDTH = 8
"""Dimensions below which a row lies on equal levels by chance."""
TIE = 1e-5
"""Values that are nearer than this share of a row's range are one level, but for rounding."""
CLOSE = 0.05
"""How far from a level a value may lie, in levels."""


def exact_values(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return which values a coarser type holds exactly; zeros say nothing and are none.

    Shape: (N, D) -> (N, D) bool.

    Example:
        >>> exact_values(torch.tensor([[0.5, 0.1, 0.0]]), torch.bfloat16).tolist()
        [[True, False, False]]
    """
    return (rows == rows.to(dtype).to(rows.dtype)) & (rows != 0)


def on_levels(rows: Tensor) -> Tensor:
    """Return which rows hold at most 256 equally spaced levels, as rows do that were 8-bit integers times a scale.

    The step is the smallest gap between two values of the row; all others must be multiples of it.

    Shape: (N, D) -> (N,) bool; False for rows narrower than 8, whose values fit by chance, and for constant rows.

    Example:
        >>> whole = torch.randint(-127, 128, (1, 64), generator=torch.Generator().manual_seed(0))
        >>> on_levels(torch.cat([whole * 0.0123, whole + torch.rand(1, 64)])).tolist()
        [True, False]
    """
    if rows.shape[1] < LEAST_WIDTH:
        return torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    ordered = rows.sort(dim=1).values.double()
    gaps = ordered.diff(dim=1)
    reach = ordered[:, -1] - ordered[:, 0]  # (N,)
    step = gaps.masked_fill(gaps <= TIE * reach[:, None], torch.inf).amin(1)
    places = (ordered - ordered[:, :1]) / step[:, None]  # (N, D)
    apart = (places - places.round()).abs().amax(1)
    return (reach > 0) & (reach < LEVELS * step) & (apart < CLOSE)
