"""What a training tells: records of steps and validations, its progress, its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Outcome", "Progress", "StepRecord", "ValidationRecord"]


@dataclass
class Progress:
    """How far a run is: all that must come back besides weights, moments and generators."""

    step: int = 0
    position: int = 0
    tokens: int = 0
    clipped: int = 0
    skipped: int = 0
    best: float | None = None
    best_step: int | None = None
    waited: int = 0


class StepRecord(NamedTuple):
    """One step: `loss` in nats per target, not smoothed, and the `norm` of the gradients before clipping."""

    step: int
    loss: float
    rate: float
    norm: float
    clipped: bool
    tokens: int
    seconds: float


class ValidationRecord(NamedTuple):
    """One validation: `loss` in nats per target, and whether it is the lowest so far."""

    step: int
    loss: float
    best: bool


class Outcome(NamedTuple):
    """Why training ended (`finished`, `interrupted`, or what `stop` was told), and how far it came."""

    reason: str
    progress: Progress
    seconds: float
