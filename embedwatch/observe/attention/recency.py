"""How much of attention goes to what was written last, by depth in a text."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import AttentionBatch
from embedwatch.geometry.attention import key_masses, stretch_masses

__all__ = ["Recency", "recency_of"]

NOTHING = 1e-9
"""A row that gives less than this to other keys than the first says nothing about them."""


class Recency(NamedTuple):
    """Rows of attention of what was written.

    Args:
        depths: (N,) int64 place of each query among the tokens that were written, from 0.
        recent: (N,) float64 share that goes to the latest tokens, the query's own among them.
        prompt: (N,) float64 share that goes to the prompt.
    """

    depths: Tensor
    recent: Tensor
    prompt: Tensor


def recency_of(batch: AttentionBatch, *, start: int, reach: int) -> Recency:
    """Return shares of what goes to other keys than the first: that one serves as a sink, and tells of no distance.

    Args:
        batch: rows of one layer, of one text.
        start: place of the first token that was written.
        reach: tokens that count as the latest.

    Example:
        >>> from embedwatch.sketches import example_attention
        >>> found = recency_of(example_attention(0)[0], start=4, reach=2)
        >>> bool(((found.recent + found.prompt) <= 1 + 1e-9).all())
        True
    """
    clean = batch.clean
    rows = clean.take(clean.positions >= start)
    own, first = rows.positions, rows.firsts
    total = rows.cumulated[:, -1] - key_masses(rows.weights, first)
    starts = torch.stack([torch.maximum(own - reach + 1, first + 1), first + 1], 1)
    ends = torch.stack([own + 1, torch.full_like(own, start)], 1)
    shares = stretch_masses(rows.cumulated, starts, torch.maximum(starts, ends)) / total[:, None]
    shares = torch.where((total > NOTHING)[:, None], shares, torch.nan)  # (N, 2)
    return Recency(own - start, shares[:, 0], shares[:, 1])
