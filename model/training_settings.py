"""How a model is trained, as one frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import check_at_least, check_one_of
from .objectives import check_smoothing
from .optimizer import BETAS, check_adamw, check_clip
from .schedules import Schedule

__all__ = ["TrainingSettings"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a model is trained; saved with each checkpoint.

    Args:
        rate: peak learning rate.
        schedule: factor on it at each step; its `steps` is the length of the training.
        accumulate: batches whose gradients make one step.
        decay: decoupled weight decay of matrices.
        decay_embeddings: whether embedding tables decay too.
        betas: of AdamW.
        clip: limit of the global norm of gradients.
        smoothing: ε of label smoothing, in training; validation is without.
        validate_every: steps between validations.
        save_every: steps between checkpoints.
        keep: checkpoints that stay, besides the best.
        patience: validations without a better loss after which it stops; 0: never.
        precision: `float32`, or `bf16` for autocast: half the width in matrix products, float32 in sums and weights.
        seed: of dropout; data and weights have their own.
    """

    rate: float = 1e-3
    schedule: Schedule = field(default_factory=Schedule)
    accumulate: int = 1
    decay: float = 0.1
    decay_embeddings: bool = False
    betas: tuple[float, float] = BETAS
    clip: float = 1.0
    smoothing: float = 0.0
    validate_every: int = 100
    save_every: int = 100
    keep: int = 3
    patience: int = 0
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        check_at_least(
            1,
            accumulate=self.accumulate,
            validate_every=self.validate_every,
            save_every=self.save_every,
            keep=self.keep,
        )
        check_at_least(0, patience=self.patience)
        check_one_of("precision", self.precision, ("float32", "bf16"))
        check_adamw(self.rate, self.decay, self.betas)
        check_clip(self.clip)
        check_smoothing(self.smoothing)

    def to_json(self) -> dict[str, Any]:
        """Return all settings as JSON."""
        return asdict(self) | {"betas": list(self.betas)}
