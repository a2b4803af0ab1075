"""Norms of rows, safe from overflow and underflow."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SAFE_NORM", "row_norms"]

SAFE_NORM = 1e15
"""Beyond this norm, or below its inverse, squares may leave the range of float32: float64 is used instead."""
_SMALL = 1 / SAFE_NORM


def row_norms(rows: Tensor) -> Tensor:
    """Return the Euclidean norm of each row in float64.

    Fast in the rows' own precision (half is widened to float32); rows whose squares leave its range are taken again
    in float64, scaled by their largest entry. A row with NaN or Inf gives NaN or Inf.

    Shape: (N, D) -> (N,) float64.

    Example:
        >>> row_norms(torch.tensor([[3.0, 4.0], [1e30, 0.0]]))
        tensor([5.0000e+00, 1.0000e+30], dtype=torch.float64)
    """
    wide = rows if rows.dtype in (torch.float32, torch.float64) else rows.float()
    norms: Tensor = torch.linalg.vector_norm(wide, dim=1).double()  # (N,)
    again = ~torch.isfinite(norms) | (norms < _SMALL)
    if bool(again.any()):
        hard = wide[again].double()
        scale = hard.abs().amax(1, keepdim=True)
        safe = torch.where(scale > 0, scale, torch.ones_like(scale))
        norms[again] = torch.linalg.vector_norm(hard / safe, dim=1) * scale[:, 0]
    return norms
