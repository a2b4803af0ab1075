"""Watches a training by the Trainer of `embedwatch_model`, which it never imports: whatever tells the same, fits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.integrations.training_watch import TrainingWatch

if TYPE_CHECKING:
    from embedwatch.monitor import Monitor

__all__ = ["TrainerWatch"]


class TrainerWatch:
    """A callback of `embedwatch_model.Trainer`: watches the model from the first step to the end.

    Loss, learning rate, norm of the gradient and its limit, number of sequences and whether it was skipped are handed
    on of each step, and of one that is validated the loss of that. At each checkpoint the embedding table is examined
    in full. A training that goes on counts its steps on. The tokenizer of the run names tokens.

    A training that ends by an exception tells its callbacks nothing: call `detach`, or use this in a `with` block.

    Args:
        renormalize: after each step rows of the embedding table that are longer are scaled to this length, see
            `embedwatch.renormalize_tokens`; by default nothing is changed.
        options: of `embedwatch.watch`.

    Raises:
        UsageError: if there is no such option, or one cannot be right; on the start of a training, if one does not fit
            the model.
    """

    def __init__(self, *, renormalize: float | None = None, **options: Any) -> None:
        self._watch = TrainingWatch(renormalize=renormalize, options=options)

    @property
    def monitor(self) -> Monitor | None:
        """What watches, or has watched; `None` before the start."""
        return self._watch.monitor

    @property
    def renormalized(self) -> int | None:
        """How many rows were scaled so far, each time counted; `None` where nobody asked for that."""
        return self._watch.renormalized

    def __enter__(self) -> TrainerWatch:
        return self

    def __exit__(self, *details: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Judge what is open and let the model go. Calling it again does nothing."""
        with self._watch.guard("detach"):
            self._watch.end()

    def on_start(self, trainer: Any) -> None:
        """Watch from the step where the training is; one that is over already is left alone, and so are the sinks."""
        if not trainer.is_over:
            self._watch.begin(trainer.model, step=trainer.progress.step, tokenizer=trainer.tokenizer)

    def on_step(self, trainer: Any, record: Any) -> None:
        """Hand on what is known of a step; one that is validated waits for that."""
        with self._watch.guard("on_step"):
            scalars = {
                "loss": record.loss,
                "lr": record.rate,
                "gradient_norm": record.norm,
                "gradient_norm_limit": trainer.settings.clip,
                "skipped": float(not math.isfinite(record.norm)),
            }
            size = getattr(trainer.data, "size", None)
            if size is not None:
                scalars["batch_size"] = size * trainer.settings.accumulate
            self._watch.hold(record.step, **scalars)
            settings = trainer.settings
            if record.step % settings.validate_every and record.step != settings.schedule.steps:
                self._watch.tell()

    def on_validation(self, trainer: Any, record: Any) -> None:
        """Hand on the loss on what is held out."""
        with self._watch.guard("on_validation"):
            self._watch.note(validation_loss=record.loss)
            self._watch.tell()

    def on_checkpoint(self, trainer: Any, path: Path) -> None:
        """Examine the embedding table; at the last step the end does."""
        with self._watch.guard("on_checkpoint"):
            if trainer.progress.step != trainer.settings.schedule.steps:
                self._watch.saved()

    def on_end(self, trainer: Any, outcome: Any) -> None:
        """Judge what is open and let the model go."""
        self.detach()
