"""Whether rows have length 1, as normalised ones have."""

from __future__ import annotations

from torch import Tensor

__all__ = ["UNIT_LENGTH", "have_unit_length"]

UNIT_LENGTH = 2e-3
"""Norms within this of 1 are those of normalised rows, also in half precision."""


def have_unit_length(norms: Tensor) -> Tensor:
    """Return which norms are those of normalised rows. Shape: (N,) -> (N,) bool.

    Example:
        >>> import torch
        >>> have_unit_length(torch.tensor([1.0, 0.9995, 1.1, torch.nan])).tolist()
        [True, True, False, False]
    """
    return (norms - 1).abs() < UNIT_LENGTH
