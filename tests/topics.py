"""Streams of rows as texts make them: topics of uneven size, a common part, a power-law spectrum, topics that last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.stats.drift import Drift

TOPICS = 12
DIMENSION = 16
SPACE_SEED = 99


def stream(count: int, *, seed: int, stay: float = 0.0, dimension: int = DIMENSION, topic: int | None = None) -> Tensor:
    """Return rows of one space in order; each row stays with its topic with this probability. Shape: (count, D)."""
    space = torch.Generator().manual_seed(SPACE_SEED)
    centres = torch.randn(TOPICS, dimension, generator=space)
    spread = torch.arange(1, dimension + 1) ** -0.25
    generator = torch.Generator().manual_seed(seed)
    leaves = torch.rand(count, generator=generator) >= stay
    drawn = torch.randint(0, TOPICS, (count,), generator=generator)
    since = torch.where(leaves, torch.arange(count), torch.tensor(0)).cummax(0).values
    topics = drawn[since] if topic is None else torch.full((count,), topic)
    noise = torch.randn(count, dimension, generator=generator) * spread
    return 0.5 + 0.6 * centres[topics] + noise


def batch(rows: Tensor) -> VectorBatch:
    return VectorBatch(rows, torch.arange(len(rows)), source="stream")


def drifted(reference: Tensor, window: Tensor, **settings: Any) -> dict[str, float | None]:
    """Return the measurements of a window beside a reference."""
    statistic = Drift(frozen=Drift.fit([batch(reference)], rows=len(reference)), **settings)
    statistic.update(batch(window))
    return {measurement.key: measurement.number for measurement in statistic.compute()}
