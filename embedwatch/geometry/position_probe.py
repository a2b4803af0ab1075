"""What a running model makes of places: attention and hidden states by distance, the ends of a text, quality by depth.

Each text is seen at several rolls: shifted round, so that every token stands at several places. What is left in the
mean over rolls belongs to the places, and not to the words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["AttentionEnds", "HiddenEnds", "attention_ends", "by_offset", "hidden_ends", "loss_bins"]

EDGE = 0.03
"""Share of a text that counts as its start, and as its end."""
LEAST_EDGE = 4


@dataclass(frozen=True)
class AttentionEnds:
    """Attention between the ends of a text, as multiples of what every place would get.

    Args:
        ends: between the end and the start.
        middle: median at offsets between a quarter and three quarters of the text.
        neighbour: at the offset 1.
    """

    ends: float
    middle: float
    neighbour: float

    @property
    def over_middle(self) -> float:
        """Ends over the middle."""
        return self.ends / max(self.middle, 1e-12)

    @property
    def over_neighbour(self) -> float:
        """Ends over the neighbour."""
        return self.ends / max(self.neighbour, 1e-12)


@dataclass(frozen=True)
class HiddenEnds:
    """Resemblance of hidden states by place alone, as cosines of what is left in the mean over rolls.

    Args:
        ends: of the first places with the last.
        neighbour: of places side by side.
        background: median of places between a quarter and three quarters of the text apart.
        chance: of places side by side where each roll has its places in another order.
    """

    ends: float
    neighbour: float
    background: float
    chance: float


def edge_of(length: int) -> int:
    """Return how many places count as one end of a text."""
    return max(LEAST_EDGE, int(EDGE * length))


def by_offset(attention: Tensor, *, causal: bool) -> Tensor:
    """Return the median attention at each offset, over uniform attention. Shape: (T, T) -> (T,) float64.

    Uniform is 1 over the keys that a query sees. Medians, so that a sink does not stand for all.
    """
    length = len(attention)
    seen = torch.arange(1, length + 1).double() if causal else torch.full((length,), float(length))
    shares = attention.double().cpu() * seen[:, None]
    found = []
    for offset in range(length):
        values = torch.diagonal(shares, -offset)
        if not causal and offset:
            values = torch.cat([values, torch.diagonal(shares, offset)])
        found.append(values.median())
    return torch.stack(found)


def attention_ends(attention: Tensor, *, causal: bool) -> AttentionEnds:
    """Return attention between the ends of a text beside that of other distances. Shape: (T, T), mean over rolls.

    Example:
        >>> near = torch.softmax(-(torch.arange(64)[:, None] - torch.arange(64)).abs().double(), 1)
        >>> attention_ends(near, causal=False).over_neighbour < 1e-6
        True
    """
    length = len(attention)
    offsets = by_offset(attention, causal=causal)
    edge = edge_of(length)
    seen = torch.arange(1, length + 1).double() if causal else torch.full((length,), float(length))
    shares = attention.double().cpu() * seen[:, None]
    # a sink takes much wherever one looks from: what the start gets of the middle is no matter of the ends
    middle_rows = shares[length // 4 : 3 * length // 4]
    usual = middle_rows[:, :edge].median(0).values.clamp(min=1e-12)
    typical = offsets[length // 4 : 3 * length // 4].median()
    sink = (usual / typical.clamp(min=1e-12)).clamp(min=1.0)
    ends = float((shares[-edge:, :edge] / sink).median())
    if not causal:
        ends = max(ends, float(shares[:edge, -edge:].median()))
    return AttentionEnds(ends, float(typical), float(offsets[1]))


def hidden_ends(hidden: Tensor, *, seed: int = 0) -> HiddenEnds:
    """Return resemblance of hidden states by place alone.

    Shape: (S, T, D): S rolls of one text.
    """
    states = hidden.double().cpu()
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.stack([roll[torch.randperm(len(roll), generator=generator)] for roll in states])
    found, chance = _placed(states), _placed(mixed)
    length = len(found)
    edge = edge_of(length)
    cosines = found @ found.T
    far = [
        torch.diagonal(cosines, offset).mean() for offset in range(length // 4, max(3 * length // 4, length // 4 + 1))
    ]
    return HiddenEnds(
        float(cosines[:edge, -edge:].mean()),
        float(torch.diagonal(cosines, 1).mean()),
        float(torch.stack(far).median()),
        float((chance[1:] * chance[:-1]).sum(1).mean()),
    )


def _placed(states: Tensor) -> Tensor:
    """Return the direction of each place: the mean over rolls, centred over places. Shape: (S, T, D) -> (T, D)."""
    mean = states.mean(0)
    return functional.normalize(mean - mean.mean(0), dim=1, eps=1e-300)


def loss_bins(losses: Tensor, bins: int) -> list[tuple[int, float]]:
    """Return the start and the mean loss of equal stretches of a text.

    Shape: (T,), of positions 1, 2, …

    Example:
        >>> loss_bins(torch.tensor([4.0, 2.0, 1.0, 1.0]), 2)
        [(0, 3.0), (2, 1.0)]
    """
    parts = losses.double().tensor_split(min(bins, max(len(losses), 1)))
    found, start = [], 0
    for part in parts:
        value = float(part.mean()) if len(part) else math.nan
        found.append((start, value))
        start += len(part)
    return found
