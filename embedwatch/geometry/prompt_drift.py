"""How far texts leave what they began with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["prompt_cosines"]


def prompt_cosines(prompts: Tensor, stretches: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine of each stretch with its own prompt, and in the mean with the prompts of the others.

    The second is the control: what any text of this model has in common with any prompt.

    Shape: (N, D), (N, B, D) -> (N, B), (N, B) float64; the second is NaN for a single prompt. A stretch of zeros, or of
    NaN, has NaN.

    Example:
        >>> own, others = prompt_cosines(torch.eye(2), torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]]))
        >>> own.tolist(), others.tolist()
        ([[1.0], [0.0]], [[0.0], [1.0]])
    """
    found = _unit(stretches) @ _unit(prompts).T  # (N, B, N)
    count = len(prompts)
    own = found.diagonal(dim1=0, dim2=2).T  # (N, B)
    other = (found.sum(2) - own) / (count - 1) if count > 1 else torch.full_like(own, torch.nan)
    return own, other


def _unit(vectors: Tensor) -> Tensor:
    found = functional.normalize(vectors.double(), dim=-1)
    return torch.where(found.norm(dim=-1, keepdim=True) > 0, found, torch.nan)
