"""From hidden states to one vector a text: the poolings of sentence-transformers, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["POOLINGS", "pool"]

TINY = 1e-9
"""Keeps a text without tokens from a division by zero; sentence-transformers uses the same."""


def _cls(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    first = mask.to(torch.int8).argmax(1)  # (B,)
    return hidden[torch.arange(len(hidden)), first]  # (B, D)


def _last(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    last = (ranks * mask).argmax(1)  # (B,)
    return hidden[torch.arange(len(hidden)), last]  # (B, D)


def _max(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    return hidden.masked_fill(~mask[..., None], -torch.inf).amax(1)  # (B, D)


def _weighted(hidden: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    total = weights.sum(1, keepdim=True).clamp(min=TINY)  # (B, 1)
    return (hidden * weights[..., None]).sum(1), total  # (B, D), (B, 1)


def _mean(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    vector, total = _weighted(hidden, mask.to(hidden.dtype))
    return vector / total


def _mean_sqrt(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    vector, total = _weighted(hidden, mask.to(hidden.dtype))
    return vector / total.sqrt()


def _weighted_mean(hidden: Tensor, mask: Tensor, ranks: Tensor) -> Tensor:
    vector, total = _weighted(hidden, (ranks * mask).to(hidden.dtype))
    return vector / total


POOLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "cls": _cls,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "last": _last,
}
"""Name of a pooling to its function, in the order in which sentence-transformers joins several."""


def pool(hidden: Tensor, mask: Tensor, modes: Sequence[str], *, skip: int = 0) -> Tensor:
    """Return one vector a text: the poolings of its tokens, side by side.

    Args:
        hidden: (B, T, D) hidden states, padded on the right.
        mask: (B, T) bool, true for tokens.
        modes: names in `POOLINGS`.
        skip: number of tokens at the start, those of a prompt, that are left out.

    Shape: (B, T, D) -> (B, len(modes) * D).
    """
    ranks = torch.arange(1, hidden.shape[1] + 1).expand_as(mask)  # (B, T); a prompt keeps its places
    mask = mask & (ranks > skip)
    hidden = hidden.masked_fill(~mask[..., None], 0.0)  # whatever padding became, it stays out of the sums
    return torch.cat([POOLINGS[mode](hidden, mask, ranks) for mode in modes], dim=1)
