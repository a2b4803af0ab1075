"""Whether short rows are the leading dimensions of long ones, as models of the Matryoshka kind are cut."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["looks_leading"]

ALIKE = 0.5
"""Correlation over dimensions, of means or of spreads, from which two samples are of the same dimensions."""
EVEN = 1e-6
"""Dimensions that differ by less than this have no place or scale of their own."""
LEAST = 16
"""Rows and dimensions below which a correlation says nothing."""


def looks_leading(rows: Tensor, short: Tensor) -> bool:
    """Return whether short rows look like the first dimensions of other, longer rows, renormalised or not.

    Both are brought to length 1. Over the dimensions, the means of both samples correlate, or the logarithms of their
    spreads do: each dimension of a model has its own place and scale, which another model does not share.

    Shape: (N, D) and (M, d) with d < D.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> scale = 0.2 + torch.rand(64, generator=generator)
        >>> one, other = torch.randn(2, 500, 64, generator=generator) * scale
        >>> looks_leading(one, other[:, :32]), looks_leading(one, other[:, 32:])
        (True, False)
    """
    width = short.shape[1]
    if width >= rows.shape[1] or width < LEAST or min(len(rows), len(short)) < LEAST:
        return False
    unit = [torch.nn.functional.normalize(each.double(), dim=1) for each in (rows[:, :width], short)]
    means = torch.stack([each.mean(0) for each in unit])  # (2, d)
    spreads = torch.stack([each.std(0).clamp(min=1e-12).log() for each in unit])
    uneven = [both for both in (means, spreads) if float(both.std(1).min()) > EVEN]
    return any(float(torch.corrcoef(both)[0, 1]) >= ALIKE for both in uneven)
