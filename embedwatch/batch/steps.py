"""TrainingStep: scalars of one training step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from embedwatch.core.errors import UsageError

__all__ = ["TrainingStep"]


@dataclass(frozen=True)
class TrainingStep:
    """Scalars of one training step, by name: `loss`, `validation_loss`, `lr`, `batch_size`, `gradient_norm`."""

    kind: ClassVar[str] = "steps"

    step: int
    scalars: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.step < 0:
            raise UsageError(f"`step` must be at least 0, got {self.step}; count from the start of the run")

    def __len__(self) -> int:
        return 1
