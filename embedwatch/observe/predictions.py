"""Predictions: what a model that puts out logits says, from a few rows of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.observe.sampling import sample_rows

__all__ = ["predictions"]

ROWS = 64
"""The most rows of logits that are looked at in a step."""
ENTRIES = 1 << 22
"""The most numbers of them: 32 rows of a vocabulary of 128 thousand."""
LEAST_ROWS = 8


def predictions(logits: Tensor, *, forward: int, seed: int = 0, valid: Tensor | None = None) -> dict[str, Tensor]:
    """Return scalars of a step: how sure predictions are, and how many of them are the same.

    `output_entropy` is the mean of `-Σ p ln p / ln V`; `output_top_share` the share of the rows that have the most
    frequent argmax. Both stay on the device of the model; nothing waits for it.

    Shape: logits (..., V), valid (...,) -> two scalars; NaN where no row is valid.

    Example:
        >>> found = predictions(torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 0.0], [0.0, 9.0]]), forward=0)
        >>> round(float(found["output_top_share"]), 2), round(float(found["output_entropy"]), 2)
        (0.75, 0.25)
    """
    width = logits.shape[-1]
    most = max(LEAST_ROWS, min(ROWS, ENTRIES // width))
    sample = sample_rows(logits.detach(), most, forward=forward, seed=seed, valid=valid)
    rows = sample.rows.float()  # (m, V)
    real = torch.ones_like(rows[:, 0]) if sample.valid is None else sample.valid.to(rows)  # (m,)
    entropy = torch.special.entr(rows.softmax(1)).sum(1) / math.log(width)  # (m,)
    best = rows.argmax(1)  # (m,)
    same = (best[:, None] == best).float() @ real  # (m,) how many rows say the same
    found = torch.where(real > 0, entropy, 0.0).sum() / real.sum()
    return {
        "output_entropy": found,
        "output_top_share": (same * real).max() / real.sum() + 0 * found,  # NaN has no argmax
    }
