"""What is done to the rows of a window: changes that must be found, all over the window."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

NORM, COLLAPSE, DEGREES, NOISE, RANK = 0.05, 0.1, 5.0, 0.1, 256
INT8_LARGEST = 127
Fault = Callable[[Tensor, int], Tensor]


def longer(rows: Tensor, seed: int) -> Tensor:
    """Return rows that are 5 % longer."""
    del seed
    return torch.mul(rows, 1 + NORM)


def collapsed(rows: Tensor, seed: int) -> Tensor:
    """Return rows that are 10 % nearer to their mean, with the lengths they had."""
    del seed
    mean = rows.mean(0)
    return _as_long(mean + (1 - COLLAPSE) * (rows - mean), rows)


def rotated(rows: Tensor, seed: int) -> Tensor:
    """Return rows turned by 5 degrees in each of D / 2 planes, which are chosen by chance."""
    D = rows.shape[1]
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64)).Q
    within = torch.eye(D, dtype=torch.float64)
    cosine, sine = math.cos(math.radians(DEGREES)), math.sin(math.radians(DEGREES))
    for place in range(0, D - 1, 2):
        within[place : place + 2, place : place + 2] = torch.tensor([[cosine, -sine], [sine, cosine]])
    return torch.matmul(rows.double(), basis @ within @ basis.T).to(rows.dtype)


def noisy(rows: Tensor, seed: int) -> Tensor:
    """Return rows with Gaussian noise whose length is 10 % of theirs, with the lengths they had."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows.shape, generator=generator) / rows.shape[1] ** 0.5
    return _as_long(rows + NOISE * rows.norm(dim=1, keepdim=True) * noise, rows)


def truncated(rows: Tensor, seed: int) -> Tensor:
    """Return rows in their first 256 principal directions, with the lengths they had."""
    del seed
    mean = rows.mean(0)
    directions = torch.linalg.svd(rows - mean, full_matrices=False).Vh[:RANK]
    return _as_long(mean + (rows - mean) @ directions.T @ directions, rows)


def as_int8(rows: Tensor, seed: int) -> Tensor:
    """Return rows stored in eight bits: 255 steps, of one size for each row."""
    del seed
    step = rows.abs().amax(1, keepdim=True) / INT8_LARGEST
    return _as_long((rows / step).round() * step, rows)


def _as_long(rows: Tensor, like: Tensor) -> Tensor:
    return torch.mul(nn.functional.normalize(rows, dim=1), like.norm(dim=1, keepdim=True))


FAULTS: dict[str, Fault] = {
    "norms + 5 %": longer,
    "collapse by 10 %": collapsed,
    "rotation by 5°": rotated,
    "noise of 10 %": noisy,
    "rank 256": truncated,
    "vectors in int8": as_int8,
}
