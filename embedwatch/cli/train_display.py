"""What a person sees of a training: a live line on a terminal, plain lines elsewhere. Loads no torch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch_model.events import Outcome, StepRecord, ValidationRecord
    from embedwatch_model.training import Trainer

__all__ = ["Bar", "Lines"]

RECENT = 20
"""Steps over which loss and speed are averaged."""


class _Recent:
    """Remembers the last steps and the last validation."""

    def __init__(self) -> None:
        self.steps: deque[StepRecord] = deque(maxlen=RECENT)
        self.validation: ValidationRecord | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Nothing yet."""

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        """Remember the step."""
        self.steps.append(record)

    def on_validation(self, trainer: Trainer, record: ValidationRecord) -> None:
        """Remember the validation."""
        self.validation = record

    def on_end(self, trainer: Trainer, outcome: Outcome) -> None:
        """Nothing more."""

    def words(self) -> str:
        """Return loss, validation, rate and speed."""
        if not self.steps:
            return ""
        loss = sum(record.loss for record in self.steps) / len(self.steps)
        speed = sum(record.tokens for record in self.steps) / max(sum(record.seconds for record in self.steps), 1e-9)
        validation = "" if self.validation is None else f"  val {self.validation.loss:.2f}"
        return f"loss {loss:.2f}{validation}  lr {self.steps[-1].rate:.1e}  {_short(speed)} tok/s"


class Bar(_Recent):
    """A progress bar that stays on its line.

    Args:
        terminal: where it is drawn.
    """

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self.bar = Progress(
            TextColumn("step {task.completed:,.0f}"),
            BarColumn(bar_width=12),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(compact=True),
            console=terminal,
        )

    def __enter__(self) -> Bar:
        self.bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.bar.stop()

    def on_start(self, trainer: Trainer) -> None:
        """Draw the bar where the run is."""
        self.task = self.bar.add_task("", total=trainer.settings.schedule.steps, completed=trainer.progress.step)

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        """Move on."""
        super().on_step(trainer, record)
        self.bar.update(self.task, completed=record.step, description=self.words())

    def on_validation(self, trainer: Trainer, record: ValidationRecord) -> None:
        """Show the new value at once."""
        super().on_validation(trainer, record)
        self.bar.update(self.task, description=self.words())


class Lines(_Recent):
    """One line on standard error for each validation: for files and logs."""

    def on_validation(self, trainer: Trainer, record: ValidationRecord) -> None:
        """Print where the training stands."""
        super().on_validation(trainer, record)
        steps = trainer.settings.schedule.steps
        click.echo(f"step {record.step:,} of {steps:,}  {self.words()}", err=True)


def _short(number: float) -> str:
    return f"{number / 1000:.1f}k" if number >= 1000 else f"{number:.0f}"
