"""What a person sees of a training: a live line on a terminal, plain lines elsewhere, and findings. Loads no torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from embedwatch.core.changes import Changes
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._blame import known_rows
from embedwatch.sinks.console import judged_line, print_lines

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console as Terminal

    from embedwatch_model.events import Outcome, StepRecord, ValidationRecord
    from embedwatch_model.training import Trainer

__all__ = ["Bar", "Findings", "Lines"]

RECENT = 20
"""Steps over which loss and speed are averaged."""


Overhead = Callable[[], "float | None"]
"""Returns the share of the training's time that watching takes; `None` where it is not known, or nobody watches."""


class Findings(Sink, register=False):
    """Prints a verdict when it becomes `warn` or `fail`, and when it recovers; nothing while it stays.

    Args:
        terminal: where to print; a bar that is shown there stays below.
        quiet: leave out recoveries.
    """

    name = "findings"

    def __init__(self, terminal: Terminal, *, quiet: bool = False) -> None:
        self._terminal, self._quiet = terminal, quiet
        self._changes = Changes()

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Print what has changed."""
        changed = self._changes.among(verdicts)
        self._changes.note(verdicts)
        by_name = known_rows(snapshot, exhibits)
        step = snapshot.provenance.step
        where = snapshot.space.place + ("" if step is None else f" at step {step:,}")
        lines = [judged_line(verdict, by_name) for verdict in changed if not (self._quiet and verdict.status == "ok")]
        print_lines(self._terminal, [replace(line, note=f"{line.note}  {where}".strip()) for line in lines])


class _Recent:
    """Remembers the last steps and the last validation.

    Args:
        overhead: what watching costs.
    """

    def __init__(self, *, overhead: Overhead = lambda: None) -> None:
        self.steps: deque[StepRecord] = deque(maxlen=RECENT)
        self.validation: ValidationRecord | None = None
        self.overhead = overhead

    def on_start(self, trainer: Trainer) -> None:
        """Nothing yet."""

    def on_step(self, trainer: Trainer, record: StepRecord) -> None:
        """Remember the step."""
        self.steps.append(record)

    def on_validation(self, trainer: Trainer, record: ValidationRecord) -> None:
        """Remember the validation."""
        self.validation = record

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """Nothing to see."""

    def on_end(self, trainer: Trainer, outcome: Outcome) -> None:
        """Nothing more."""

    def words(self) -> str:
        """Return loss, validation, rate, speed, and what watching costs."""
        if not self.steps:
            return ""
        loss = sum(record.loss for record in self.steps) / len(self.steps)
        speed = sum(record.tokens for record in self.steps) / max(sum(record.seconds for record in self.steps), 1e-9)
        validation = "" if self.validation is None else f"  val {self.validation.loss:.2f}"
        share = self.overhead()
        cost = "" if share is None else f"  embedwatch {share:.1%}".replace("%", " %")
        return f"loss {loss:.2f}{validation}  lr {self.steps[-1].rate:.1e}  {_short(speed)} tok/s{cost}"


class Bar(_Recent):
    """A progress bar that stays on its line.

    Args:
        terminal: where it is drawn.
        overhead: what watching costs.
    """

    def __init__(self, terminal: Terminal, *, overhead: Overhead = lambda: None) -> None:
        super().__init__(overhead=overhead)
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
