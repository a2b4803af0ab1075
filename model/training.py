"""The training loop: accumulate, clip, step, validate, save; resumable bit for bit."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from . import history
from .checkpoint import checkpoint_path, latest, publish, read_checkpoint, step_of, write_checkpoint
from .data import Data
from .errors import ModelError
from .events import Outcome, Progress, StepRecord, ValidationRecord
from .guards import interruptible, seeded_apart
from .objectives import Batch, Loss, cross_entropy
from .optimizer import adamw, clip_by_global_norm
from .training_settings import TrainingSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Callback", "Trainer"]

EARLY = "stopped early"
MOST_SKIPPED = 20
"""So many steps in a row without a finite gradient end the training: it will not come back by itself."""


class Callback(Protocol):
    """What is told of a training: a subclass writes the events it needs, the others do nothing."""

    def on_start(self, trainer: Trainer) -> None:
        """Before the first step, after a checkpoint was read."""

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        """After each step of the optimizer."""

    def on_validation(self, trainer: Trainer, record: ValidationRecord) -> None:
        """After each validation."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """After each checkpoint; one of a validation comes before that is told."""

    def on_end(self, trainer: Trainer, outcome: Outcome) -> None:
        """After the last checkpoint."""


class Trainer:
    """Trains a model on batches, and goes on from the newest checkpoint of its run directory.

    On one thread a run that was interrupted ends bit for bit like one that was not: weights, moments, dropout and data
    continue from where they were, for a batch is a function of its number and the rate one of the step.

    Args:
        model: `model(ids, source=…, source_mask=…)` returns something with `logits`.
        data: batches by number, and what is held out.
        settings: how.
        run: directory for checkpoints and history; None keeps nothing.
        tokenizer: saved with each checkpoint.
        callbacks: told in their order.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        settings: TrainingSettings,
        *,
        run: Path | None = None,
        tokenizer: Tokenizer | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.model, self.data, self.settings = model, data, settings
        self.run, self.tokenizer, self.callbacks = run, tokenizer, list(callbacks)
        self.device = next(model.parameters()).device
        self.optimizer = adamw(
            model,
            rate=settings.rate,
            decay=settings.decay,
            decay_embeddings=settings.decay_embeddings,
            betas=settings.betas,
        )
        self.progress = Progress()
        self._reason: str | None = None
        self._saved: int | None = None
        self._in_a_row = 0  # steps skipped

    @property
    def latest_step(self) -> int:
        """The step that `fit` will go on from."""
        path = latest(self.run) if self.run is not None else None
        return self.progress.step if path is None else step_of(path)

    def stop(self, reason: str) -> None:
        """Let the training end after the current step, with a checkpoint. Callbacks may call it."""
        self._reason = self._reason or reason

    @property
    def is_over(self) -> bool:
        """Whether no step is left to do: the schedule is at its end, or something has stopped it."""
        return self._reason is not None or self.progress.step >= self.settings.schedule.steps

    def fit(self) -> Outcome:
        """Train to the end of the schedule, or until something stops it.

        SIGINT ends it after the current step, with a checkpoint; a second one at once.

        Raises:
            ModelError: if the checkpoint is another model's, or gradients stay without a finite value.
        """
        begin = time.perf_counter()
        self._reason = None
        with seeded_apart(self.settings.seed), interruptible(self.stop):
            self._resume()
            self._tell("on_start")
            self.model.train()
            while not self.is_over:
                self._advance()
            self._save()
            if self.run is not None:
                publish(self._chosen(self.run), self.run)
        self.model.eval()
        outcome = Outcome(self._reason or "finished", self.progress, time.perf_counter() - begin)
        self._tell("on_end", outcome)
        return outcome

    def validate(self) -> float:
        """Return the loss on what is held out, in nats per target, without smoothing or dropout."""
        self.model.eval()
        with torch.no_grad():
            losses = [self._loss(batch) for batch in self.data.validation()]
        self.model.train()
        return float(sum(loss.nats for loss in losses)) / max(sum(loss.number for loss in losses), 1)

    def _advance(self) -> None:
        """Do one step, and what is due after it."""
        record = self._step()
        self._log(record)
        self._tell("on_step", record)
        step, settings = self.progress.step, self.settings
        if step % settings.validate_every == 0 or step == settings.schedule.steps:
            self._judge()
        if step % settings.save_every == 0:
            self._save()

    def _step(self) -> StepRecord:
        begin = time.perf_counter()
        progress, settings = self.progress, self.settings
        batches = [self.data.batch(progress.position + index) for index in range(settings.accumulate)]
        count = max(sum(batch.number for batch in batches), 1)
        nats = torch.zeros((), device=self.device)
        for batch in batches:
            loss = self._loss(batch, smoothing=settings.smoothing)
            (loss.total / count).backward()  # a mean over all batches together: equal to one large batch
            nats += loss.nats
        rate = settings.rate * settings.schedule(progress.step)
        norm, clipped = clip_by_global_norm(self.model.parameters(), settings.clip)
        self._update(rate, finite=norm < math.inf)
        tokens = sum(batch.ids.numel() for batch in batches)
        progress.step += 1
        progress.position += settings.accumulate
        progress.tokens += tokens
        progress.clipped += clipped
        seconds = time.perf_counter() - begin
        return StepRecord(progress.step, float(nats) / count, rate, norm, clipped, tokens, seconds)

    def _update(self, rate: float, *, finite: bool) -> None:
        """Move the weights, unless a gradient is NaN or infinite: that would stay for ever."""
        self._in_a_row = 0 if finite else self._in_a_row + 1
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        else:
            self.progress.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        if self._in_a_row >= MOST_SKIPPED:
            raise ModelError(
                f"`rate` must keep gradients finite, got {MOST_SKIPPED} steps in a row with NaN or infinity at rate "
                f"{rate:.2g}; make it smaller or the warm-up longer, and start from an older checkpoint"
            )

    def _loss(self, batch: Batch, *, smoothing: float = 0.0) -> Loss:
        batch = batch.to(self.device)
        more = {} if batch.source is None else {"source": batch.source, "source_mask": batch.source_mask}
        with self._precision():
            logits = self.model(batch.ids, **more).logits  # (B, T, V)
        return cross_entropy(logits, batch.targets, smoothing=smoothing)

    def _precision(self) -> AbstractContextManager[Any]:
        bf16 = self.settings.precision == "bf16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16)

    def _judge(self) -> None:
        """Validate, remember the best, stop when it has not come for too long."""
        progress = self.progress
        loss = self.validate()
        better = math.isfinite(loss) and (progress.best is None or loss < progress.best)
        if better:
            progress.best, progress.best_step, progress.waited = loss, progress.step, 0
            self._save()
        else:
            progress.waited += 1
        record = ValidationRecord(progress.step, loss, better)
        self._log(record)
        self._tell("on_validation", record)
        self._check_patience()

    def _check_patience(self) -> None:
        if 0 < self.settings.patience <= self.progress.waited:
            self.stop(EARLY)

    def _save(self) -> None:
        """Write a checkpoint of this step, unless there is one, and put its weights into the run directory."""
        if self.run is None or self._saved == self.progress.step:
            return
        path = write_checkpoint(
            self.run,
            step=self.progress.step,
            model=self.model,
            tokenizer=self.tokenizer,
            optimizer=self.optimizer,
            training={"progress": asdict(self.progress), "settings": self.settings.to_json()},
            keep=self.settings.keep,
            spare=self.progress.best_step,
        )
        self._saved = self.progress.step
        publish(path, self.run)
        self._tell("on_checkpoint", path)

    def _chosen(self, run: Path) -> Path:
        """Return the checkpoint whose weights are handed on: the newest, or the best where it was stopped early."""
        best = self.progress.best_step if self._reason == EARLY else None
        return checkpoint_path(run, self.progress.step if best is None else best)

    def _resume(self) -> None:
        path = latest(self.run) if self.run is not None else None
        if path is None or self.run is None:
            return
        training = read_checkpoint(path, self.model, self.optimizer)
        self.progress = Progress(**training["progress"])
        self._saved = self.progress.step
        self._check_patience()
        history.cut(self.run, self.progress.step)

    def _log(self, record: StepRecord | ValidationRecord) -> None:
        if self.run is not None:
            history.append(self.run, record)

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *arguments)
