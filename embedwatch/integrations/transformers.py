"""Watches a training by the Trainer of transformers, and by those made of it, such as that of sentence-transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from embedwatch.integrations.training_watch import TrainingWatch
from embedwatch.integrations.window_logs import WindowLogs
from embedwatch.recording import RECORDING_FILE

if TYPE_CHECKING:
    from embedwatch.monitor import Monitor

__all__ = ["EmbedwatchCallback"]

VALIDATION = re.compile(r"eval_(\w+_)?loss")
ENDED = "train_runtime"
"""What the Trainer logs at its end, before it may put the best weights in place of the last."""


class EmbedwatchCallback(TrainerCallback):  # type: ignore[misc]
    """Watches the model of a `transformers.Trainer` from the first step to the end.

    Steps, learning rate, number of sequences, the norm to which gradients are clipped and whether a step was skipped
    are handed on at each step, and nothing waits for the device: the loss and the norm of the gradient come when the
    Trainer logs them (the loss then is the mean since the log before), that of a validation after it. At each
    checkpoint the embedding table is examined in full. A training that is resumed counts its steps on. The
    `processing_class` names tokens.

    What is found is added to what the Trainer logs, once for each closed window: `embedwatch/PLACE/METRIC` for
    `norm_mean` and `effective_rank_ratio` of each place, the headline metrics of the embedding table, and
    `watch_overhead_ratio`; `embedwatch/warn` and `embedwatch/fail` count the findings, `embedwatch/renormalized` the
    rows that were scaled. A Trainer tells its reporters (TensorBoard, W&B) before the callbacks that it is given: they
    see this only after `add_to(trainer)`, which puts the callback first; `trainer.state.log_history` has it always.

    In a training on several processes all watch, and the first judges what they saw together; it alone has sinks. By
    default findings go to Python's log, and all windows to `embedwatch.jsonl` in the output directory.

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
        self._records = "sinks" not in options
        self._logs = WindowLogs(self._watch)

    def add_to(self, trainer: Any) -> EmbedwatchCallback:
        """Let a Trainer tell this callback first, so that all others see what it adds to the logs; return it."""
        trainer.callback_handler.callbacks.insert(0, self)
        return self

    @property
    def monitor(self) -> Monitor | None:
        """What watches, or has watched; `None` before the start."""
        return self._watch.monitor

    @property
    def renormalized(self) -> int | None:
        """How many rows were scaled so far, each time counted; `None` where nobody asked for that."""
        return self._watch.renormalized

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Watch from the step where the training is; one that is over already is left alone, and so are the sinks."""
        self._logs.restart()
        if 0 < state.max_steps <= state.global_step:
            return
        first = state.is_world_process_zero
        more = {"sinks": _recording(args)} if first and self._records else {}
        tokenizer = kwargs.get("processing_class")
        together = _are_together(args)
        self._watch.begin(
            kwargs["model"], step=state.global_step, silent=not first, together=together, tokenizer=tokenizer, **more
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End the step before: what was logged and saved after it is known by now."""
        with self._watch.guard("on_step_begin"):
            self._watch.tell()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the learning rate before the schedule changes it, and whether the step was skipped."""
        with self._watch.guard("on_optimizer_step"):
            optimizer = kwargs["optimizer"]
            skipped = bool(getattr(optimizer, "step_was_skipped", False))  # by a scaler of float16 gradients
            self._watch.note(lr=optimizer.param_groups[0]["lr"], skipped=float(skipped))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hand on the step, when the next one begins."""
        with self._watch.guard("on_step_end"):
            size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            limit = {"gradient_norm_limit": args.max_grad_norm} if args.max_grad_norm else {}
            self._watch.hold(state.global_step, batch_size=size, **limit)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Take the loss, and add what was found since the log before; with the last log, end."""
        with self._watch.guard("on_log"):
            if logs is None or not self._watch.watching:
                return
            if "loss" in logs:
                self._watch.note(loss=logs["loss"])
            if "grad_norm" in logs:
                self._watch.note(gradient_norm=logs["grad_norm"])
            if ENDED in logs:
                self._watch.end()
            if "loss" in logs or ENDED in logs:
                self._add_to_logs(state, logs)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Hand on the loss on what is held out; of several sets, that of the last."""
        with self._watch.guard("on_evaluate"):
            for name, value in (metrics or {}).items():
                if VALIDATION.fullmatch(name) and self._watch.watching:
                    self._watch.note(validation_loss=value)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Examine the embedding table."""
        with self._watch.guard("on_save"):
            self._watch.saved()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Judge what is open and let the model go."""
        with self._watch.guard("on_train_end"):
            self._watch.end()

    def _add_to_logs(self, state: Any, logs: dict[str, float]) -> None:
        added = self._logs.fresh()
        logs.update(added)
        if state.log_history:
            state.log_history[-1].update(added)


def _are_together(args: Any) -> bool:
    """Return whether each process trains on rows of its own: not where layers or matrices are split among them too."""
    split = getattr(args, "parallelism_config", None) is not None or getattr(args, "deepspeed", None) is not None
    return args.world_size > 1 and args.parallel_mode.value == "distributed" and not split


def _recording(args: Any) -> list[str]:
    folder = Path(args.output_dir)
    with suppress(OSError):  # the sink says in one line what is wrong with the folder
        folder.mkdir(parents=True, exist_ok=True)
    return ["log", f"jsonl:{folder / RECORDING_FILE}"]
