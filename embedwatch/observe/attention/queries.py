"""Which queries are looked at: a few of several sequences, spread over each, chosen by hash and only among real tokens.

Which sequences is known to the host, which queries only to the device: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.hashing import combine

__all__ = ["Chosen", "choose_queries", "over_items"]

SPREAD = 4
"""So many sequences of a batch share the sampled queries, more where they are shorter than their share."""
GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
LAST = torch.iinfo(torch.int64).max
UNIT_BITS = 24
"""So many bits of a hash make a number from 0 to 1: those that float32 holds."""


@dataclass(frozen=True)
class Chosen:
    """Sampled queries of one call. Letters: I sequences chosen, Q queries of each.

    Args:
        items: the sequences, as indices into the batch.
        index: (I, Q) int64 which queries of each.
        kept: (I, Q) bool, false for what only fills up: a query twice, or one that is padding.
    """

    items: tuple[int, ...]
    index: Tensor
    kept: Tensor

    def numbers(self, length: int) -> Tensor:
        """Return the number of each query among the `length` of each sequence of the batch. Shape: (I, Q) int64."""
        return self.index + over_items(self.items, self.index.device)[:, None] * length


def over_items(items: Sequence[int], device: torch.device) -> Tensor:
    """Return known numbers as a tensor, filled in on its device: a copy from the host would wait. Shape: (I,) int64."""
    return torch.stack([torch.full((), item, dtype=torch.int64, device=device) for item in items])


def choose_queries(
    batch: int, length: int, count: int, *, forward: int, seed: int, real: Tensor | None, device: torch.device
) -> Chosen:
    """Choose at most `count` queries of a batch of sequences of `length`, one from each of as many equal stretches.

    Args:
        batch: B.
        length: T.
        count: the most queries.
        forward: which pass it is.
        seed: of the sample.
        real: (B, T) bool; `None` where no query is padding.
        device: where the queries are.

    Example:
        >>> chosen = choose_queries(2, 100, 16, forward=0, seed=0, real=None, device=torch.device("cpu"))
        >>> chosen.items, chosen.index.shape, bool((chosen.index.diff() > 0).all())
        ((0, 1), torch.Size([2, 8]), True)
    """
    each = min(length, max(1, count // min(batch, SPREAD)))
    items = _items(batch, min(batch, max(1, count // each)), forward, seed)
    places = torch.arange(each, device=device)  # (Q,)
    if real is None:
        index = _stretches(places, torch.full((len(items), 1), length, device=device), items, forward, seed)
        return Chosen(items, index, torch.ones_like(index, dtype=torch.bool))
    chosen = torch.stack([real[item] for item in items]).to(device, non_blocking=True)  # (I, T)
    passed = chosen.long().cumsum(1)  # (I, T)
    total = passed[:, -1:]  # (I, 1)
    ranks = torch.where(total > each, _stretches(places, total, items, forward, seed), places)  # (I, Q)
    index = torch.searchsorted(passed, ranks + 1).clamp(max=length - 1)
    return Chosen(items, index, ranks < total)


def _items(batch: int, count: int, forward: int, seed: int) -> tuple[int, ...]:
    """Return which sequences, one from each of as many equal stretches of the batch, at another place each time."""
    if count == batch:
        return tuple(range(batch))
    shift = ((forward + 1) * GOLDEN + seed * (GOLDEN >> 1)) & WORD
    return tuple((step * batch + ((shift * batch) >> 64)) // count for step in range(count))


def _stretches(places: Tensor, total: Tensor, items: Sequence[int], forward: int, seed: int) -> Tensor:
    """Return one whole number in each of as many equal stretches below `total`. Shape: (Q,), (I, 1) -> (I, Q)."""
    keys = places + over_items(items, places.device)[:, None] * len(places)  # (I, Q)
    hashes = combine(keys, (forward * GOLDEN + seed) & LAST) & LAST
    jitter = (hashes >> (63 - UNIT_BITS)).float() / (1 << UNIT_BITS)  # (I, Q)
    begins, ends = places * total // len(places), (places + 1) * total // len(places)
    return torch.minimum(begins + ((ends - begins) * jitter).long(), (total - 1).clamp(min=0))
