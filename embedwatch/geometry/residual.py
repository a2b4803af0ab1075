"""The residual stream: how far tokens are from being all alike, and how far single entries stand out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.geometry.norms import row_norms

__all__ = ["alike_distance", "massive_entry"]


def alike_distance(rows: Tensor) -> float | None:
    """Return how far rows are from all pointing the same way: `√(1 - ‖mean(x / ‖x‖)‖²)`.

    It is the root mean square distance of unit rows from their mean: 0 where all are alike, near 1 where directions
    cancel. Attention alone brings it to 0 doubly exponentially in depth. Rows are brought to length 1 first, since a
    few massive tokens would be all that a matrix norm sees.

    Shape: (N, D) -> number in [0, 1]; `None` where fewer than two rows are finite and not zero.
    References: Dong, Cordonnier & Loukas 2021, "Attention is not all you need", https://arxiv.org/abs/2103.03404

    Example:
        >>> alike_distance(torch.tensor([[2.0, 0.0], [1.0, 0.0]]))
        0.0
        >>> alike_distance(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
        1.0
    """
    norms = row_norms(rows)
    sound = norms.isfinite() & (norms > 0)
    if int(sound.sum()) < 2:
        return None
    wide = rows[sound].double()
    unit = wide / torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return math.sqrt(float((unit - unit.mean(0)).square().sum(1).mean()))


def massive_entry(rows: Tensor) -> tuple[float, float, int, int] | None:
    """Return the largest entry in size, how many median entries that is, and its row and dimension.

    Shape: (N, D) -> numbers; `None` where nothing is finite, or the median entry is 0.
    References: Sun et al. 2024, "Massive activations in large language models", https://arxiv.org/abs/2402.17762; they
        call entries massive that are above 100 and above 1,000 medians.

    Example:
        >>> massive_entry(torch.tensor([[1.0, -1.0], [1.0, 500.0]]))
        (500.0, 500.0, 1, 1)
    """
    sizes = rows.abs()
    sizes = torch.where(sizes.isfinite(), sizes, 0.0)
    median = float(sizes[sizes > 0].median()) if bool((sizes > 0).any()) else 0.0
    if not median > 0:
        return None
    place = int(sizes.argmax())
    row, dimension = divmod(place, rows.shape[1])
    return float(sizes[row, dimension]), float(sizes[row, dimension]) / median, row, dimension
