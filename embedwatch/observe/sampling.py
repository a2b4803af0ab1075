"""Which rows of an output are looked at: those with the smallest seeded hash of forward and place in it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.hashing import combine

__all__ = ["Sample", "sample_rows"]

ROW_BITS = 24
"""A row's number holds the forward above so many bits, and the row of the output in them."""
LAST = torch.iinfo(torch.int64).max


class Sample(NamedTuple):
    """Rows of one output, copied, on the device of the model.

    Args:
        rows: (m, D).
        numbers: (m,) int64, each used once in the life of a Monitor.
        valid: (m,) bool, false where the row is padding; `None` where none is.
        inputs: (m,) int64 identity of what each row was made of; `None` where it is not known.
    """

    rows: Tensor
    numbers: Tensor
    valid: Tensor | None
    inputs: Tensor | None = None


def sample_rows(
    output: Tensor,
    count: int,
    *,
    forward: int,
    seed: int,
    valid: Tensor | None = None,
    inputs: Tensor | None = None,
) -> Sample:
    """Copy at most `count` rows of an output, chosen by hash: no random generator, no synchronisation with the device.

    Where fewer than `count` rows are valid, the rest is padding and marked as such.

    Shape: output (..., D), valid (...,), inputs (N,) -> rows (m, D).

    Example:
        >>> sample = sample_rows(torch.zeros(2, 50, 4), 8, forward=0, seed=0)
        >>> sample.rows.shape, len(sample.numbers.unique())
        (torch.Size([8, 4]), 8)
    """
    rows = output.reshape(-1, output.shape[-1])  # (N, D)
    total = len(rows)
    places = torch.arange(total, device=output.device)
    valid = None if valid is None else valid.to(output.device, non_blocking=True)  # layers may lie on several
    first = (forward << ROW_BITS) & LAST
    if total <= count:
        made_of = None if inputs is None else inputs.clone()
        return Sample(rows.clone(), places + first, None if valid is None else valid.reshape(-1), made_of)
    hashes = combine(places, _seed(forward, seed)) & LAST  # (N,), not negative
    if valid is not None:
        hashes = torch.where(valid.reshape(-1), hashes, LAST)
    chosen = torch.topk(hashes, count, largest=False, sorted=False).indices  # (m,)
    taken = None if valid is None else valid.reshape(-1)[chosen]
    return Sample(rows[chosen], chosen + first, taken, None if inputs is None else inputs[chosen])


def _seed(forward: int, seed: int) -> int:
    """Return a seed for one forward that fits 64 bits."""
    return (forward * 0x9E3779B97F4A7C15 + seed) % LAST
