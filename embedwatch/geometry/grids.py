"""Precision of stored numbers: whether the values of a row lie on the grid of a narrower type."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["GRIDS", "on_grid"]

GRIDS = ("binary", "int8", "bfloat16", "float16")
"""From the coarsest on."""
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
LEVELS = 256
LEAST_COLUMNS = 16
"""Of fewer values, evenly spaced ones are no surprise."""
OFF = 0.02
"""A value may lie so far from a level, in steps: what float32 loses at 256 levels is ten times less."""


def on_grid(rows: Tensor, grid: str) -> Tensor:
    """Return which rows hold only values of one grid.

    `bfloat16` and `float16`: each value is one of the type. `int8`: the values of a row are at most 256 evenly spaced
    levels, whatever their scale and offset, as dequantised or integer embeddings are. `binary`: two values at most.

    Shape: (N, D) float32, finite -> (N,) bool. No row of fewer than 16 values is on the grids of `int8` and `binary`.

    Example:
        >>> halves = torch.tensor([[0.5, 0.1], [0.5, 0.25]])
        >>> on_grid(halves, "bfloat16").tolist()
        [False, True]
    """
    if grid in TYPES:
        return (rows.to(TYPES[grid]).to(rows.dtype) == rows).all(1)
    if rows.shape[1] < LEAST_COLUMNS:
        return torch.zeros(len(rows), dtype=torch.bool)
    if grid == "binary":
        return ((rows == rows.amin(1, keepdim=True)) | (rows == rows.amax(1, keepdim=True))).all(1)
    ordered = rows.double().sort(dim=1).values  # (N, D)
    lowest, span = ordered[:, :1], ordered[:, -1:] - ordered[:, :1]
    gaps = ordered.diff(dim=1)
    step = gaps.masked_fill(gaps <= span / (4 * LEVELS), torch.inf).amin(1, keepdim=True)  # (N, 1)
    places = (ordered - lowest) / step
    even = ((places - places.round()).abs() <= OFF).all(1)
    return even & (span[:, 0] <= (LEVELS - 1 + OFF) * step[:, 0])
