"""Watches a training by the Trainer of Lightning, by either of its names: `lightning` or `pytorch_lightning`."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from embedwatch.core.errors import UsageError
from embedwatch.integrations.distributed import are_together
from embedwatch.integrations.training_watch import TrainingWatch
from embedwatch.integrations.window_logs import WindowLogs
from embedwatch.observe.gradient_parts import OF_PARTS, squares_of_parts
from embedwatch.observe.gradients import gradient_norms
from embedwatch.recording import RECORDING_FILE

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # its older name, which people have alone
    from pytorch_lightning.callbacks import Callback

if TYPE_CHECKING:
    from embedwatch.monitor import Monitor

__all__ = ["EmbedwatchCallback"]

VALIDATION = re.compile(r"(?:val|valid|validation|eval|dev)[_/.]?(?:\w+[_/.])?loss(?:_epoch)?", re.IGNORECASE)
"""Names under which people log the loss on what is held out."""
APPLIED = "gradient_norm_applied"


class EmbedwatchCallback(Callback):  # type: ignore[misc]
    """Watches the module of a Lightning `Trainer` from the first step to the end.

    A step is one of the optimizer. Its loss is the mean over the batches it accumulates, as `training_step` returned
    it: Lightning itself divides what it hands to callbacks. The norm of the gradient is taken before clipping, where
    gradients are reduced over ranks and unscaled, at steps that are looked at. The loss of a validation is found in
    `trainer.callback_metrics`. At each checkpoint the embedding table is examined in full. A training that is resumed
    counts its steps on.

    What is found goes to the loggers of the trainer, once for each closed window: `embedwatch/PLACE/METRIC` for
    `norm_mean` and `effective_rank_ratio` of each place, the headline metrics of the embedding table, and
    `watch_overhead_ratio`; `embedwatch/warn` and `embedwatch/fail` count the findings.

    On several ranks (DDP, FSDP2) all watch, and the first judges what they saw together; it alone has sinks and logs.
    By default findings go to Python's log, and all windows to `embedwatch.jsonl` in `trainer.log_dir`.

    Args:
        part: dotted path of the module in the LightningModule that is watched; by default the whole.
        validation_loss: name of the metric; by default the first that is called like one, such as `val_loss`.
        renormalize: after each step rows of the embedding table that are longer are scaled to this length, see
            `embedwatch.renormalize_tokens`; by default nothing is changed.
        options: of `embedwatch.watch`.

    Raises:
        UsageError: if there is no such option, or one cannot be right; on the start of a training, if one does not fit
            the model.
    """

    def __init__(
        self,
        *,
        part: str = "",
        validation_loss: str | None = None,
        renormalize: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._watch = TrainingWatch(renormalize=renormalize, options=options)
        self._logs = WindowLogs(self._watch)
        self._part, self._validation_loss = part, validation_loss
        self._records = "sinks" not in options
        self._told = 0
        self._loss: Tensor | None = None  # the sum over the batches since the last step, and how many they are
        self._batches = 0
        self._scalars: dict[str, float | Tensor] = {}

    @property
    def monitor(self) -> Monitor | None:
        """What watches, or has watched; `None` before the start."""
        return self._watch.monitor

    @property
    def renormalized(self) -> int | None:
        """How many rows were scaled so far, each time counted; `None` where nobody asked for that."""
        return self._watch.renormalized

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Watch from the step where the training is."""
        self._logs.restart()
        self._loss, self._batches, self._scalars, self._told = None, 0, {}, trainer.global_step
        folder = Path(trainer.log_dir or trainer.default_root_dir)  # asks all ranks
        first = trainer.is_global_zero
        more: dict[str, Any] = {"sinks": _recording(folder)} if first and self._records else {}
        together = trainer.world_size > 1 and are_together(trainer.strategy.model)
        model = _part(pl_module, self._part)
        self._watch.begin(model, step=trainer.global_step, silent=not first, together=together, **more)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """End the step before: what was validated and saved after it is known by now."""
        with self._watch.guard("on_train_batch_start"):
            self._watch.tell()

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the learning rate, and the gradient before it is clipped."""
        with self._watch.guard("on_before_optimizer_step"):
            if optimizer is not trainer.optimizers[0]:
                return
            self._scalars["lr"] = optimizer.param_groups[0]["lr"]
            if trainer.gradient_clip_val and trainer.gradient_clip_algorithm in (None, "norm"):
                self._scalars["gradient_norm_limit"] = float(trainer.gradient_clip_val)
            monitor = self._watch.monitor
            if monitor is not None and monitor.pulse.armed:
                self._scalars |= _gradient([each for group in optimizer.param_groups for each in group["params"]])

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Hand on a step, when the next batch begins; batches of which the optimizer takes several wait."""
        with self._watch.guard("on_train_batch_end"):
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if isinstance(loss, Tensor):
                divided = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
                whole = loss.detach() * divided
                self._loss = whole if self._loss is None else self._loss + whole
                self._batches += 1
            if trainer.global_step == self._told:
                return
            self._told = trainer.global_step
            scalars, loss, batches = self._scalars, self._loss, self._batches
            self._scalars, self._loss, self._batches = {}, None, 0
            if loss is not None:
                scalars["loss"] = loss / batches
            self._watch.hold(trainer.global_step, **scalars, **_batch_size(trainer))
            self._log(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Hand on the loss on what is held out."""
        with self._watch.guard("on_validation_end"):
            if trainer.sanity_checking or not self._watch.watching:
                return
            for name, value in trainer.callback_metrics.items():
                named = name == self._validation_loss if self._validation_loss else VALIDATION.fullmatch(name)
                if named:
                    self._watch.note(validation_loss=value)
                    return

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """Examine the embedding table."""
        with self._watch.guard("on_save_checkpoint"):
            if self._watch.watching:
                self._watch.saved()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Judge what is open, log it, and let the model go."""
        with self._watch.guard("on_train_end"):
            self._watch.end()
            self._log(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Judge what is open, and let the model go: nobody says that a training has ended so."""
        with self._watch.guard("on_exception"):
            self._watch.end()

    def _log(self, trainer: Any) -> None:
        found = self._logs.fresh() if trainer.is_global_zero else {}
        for logger in trainer.loggers if found else ():
            logger.log_metrics(found, step=trainer.global_step)


def _gradient(parameters: list[Tensor]) -> dict[str, Tensor]:
    """Return the norm of all gradients as `gradient_norm`, or this rank's part in it."""
    whole = gradient_norms(parameters).get(APPLIED)
    if whole is not None:
        return {"gradient_norm": whole}
    part = squares_of_parts(parameters).get(f"{APPLIED}{OF_PARTS}")
    return {} if part is None else {f"gradient_norm{OF_PARTS}": part}


def _part(module: nn.Module, path: str) -> nn.Module:
    try:
        return module.get_submodule(path)
    except AttributeError:
        names = ", ".join(name for name, _ in module.named_children())
        raise UsageError(f"`part` must be a module of the LightningModule, got {path!r}; it has {names}") from None


def _batch_size(trainer: Any) -> dict[str, int]:
    """Return how many sequences make a step, where the loader of the training says so."""
    size = getattr(trainer.train_dataloader, "batch_size", None)
    known = isinstance(size, int)
    return {"batch_size": size * trainer.accumulate_grad_batches * trainer.world_size} if known else {}


def _recording(folder: Path) -> list[str]:
    with suppress(OSError):  # the sink says in one line what is wrong with the folder
        folder.mkdir(parents=True, exist_ok=True)
    return ["log", f"jsonl:{folder / RECORDING_FILE}"]
