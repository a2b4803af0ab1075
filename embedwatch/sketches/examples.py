"""Batches of other kinds than vectors that exercise a Statistic."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from embedwatch.batch import TokenBatch

__all__ = ["example_tokens"]


def example_tokens(seed: int, *, sizes: Sequence[int] = (23, 1, 40, 2)) -> list[TokenBatch]:
    """Return a table token by token: norms that grow with frequency, three far longer rows, tokens that never came.

    Drift is not known of every fifth token, movement of those alone that came.

    Example:
        >>> [len(batch) for batch in example_tokens(0)]
        [23, 1, 40, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    count = sum(sizes)
    frequency = torch.exp(torch.randn(count, generator=generator) * 2)
    counts = frequency.long()  # a third of the tokens never came
    norms = (1 + frequency).pow(0.2) * (1 + 0.1 * torch.rand(count, generator=generator))
    norms[torch.randperm(count, generator=generator)[:3]] *= 30
    drift, update = 0.3 * torch.rand(2, count, generator=generator)
    drift[::5] = torch.nan
    update[counts == 0] = torch.nan
    return TokenBatch(torch.randperm(count, generator=generator), norms, counts, drift, update).split(sizes)
