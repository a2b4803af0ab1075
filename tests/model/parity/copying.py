"""Copies weights of Hugging Face models into ours. What ours has and theirs has not (biases) becomes 0."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 41
PADDING = 0


def copy(ours: Tensor | None, theirs: Tensor | None) -> None:
    """Copy one tensor, in place, so that ties hold."""
    if ours is not None:
        with torch.no_grad():
            ours.copy_(torch.zeros_like(ours) if theirs is None else theirs)


def copy_module(ours: Any, theirs: Any) -> None:
    """Copy a linear map, a norm or an embedding."""
    copy(ours.weight, theirs.weight)
    copy(getattr(ours, "bias", None), getattr(theirs, "bias", None))


def copy_all(pairs: dict[nn.Module, Any]) -> None:
    for ours, theirs in pairs.items():
        copy_module(ours, theirs)


def stirred(theirs: Any, seed: int = 0) -> Any:
    """Move every weight away from its start, so that no norm or bias is at 1 or 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return theirs.eval()


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    """Return tokens without the padding token."""
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def mask(lengths: list[int], *, left: bool = False) -> Tensor:
    """Return which tokens are real, padded on the right or on the left."""
    longest = max(lengths)
    rows = [[False] * (longest - n) + [True] * n if left else [True] * n + [False] * (longest - n) for n in lengths]
    return torch.tensor(rows)
