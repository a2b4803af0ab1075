"""How `embedwatch train` watches what it trains: options, defaults for short runs, and what is said at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from embedwatch.core.errors import UsageError
from embedwatch.core.sink import Sink
from embedwatch.recording import RECORDING_FILE

if TYPE_CHECKING:
    from embedwatch.integrations.model_trainer import TrainerWatch

__all__ = ["WatchSettings", "conclusion", "conclusion_json", "watch_options"]

WINDOWS, LEAST_WINDOW = 20, 10
"""So many windows make a run, none shorter than so many steps."""
LOOKS, EVERY = 5, 10
"""So many steps of a window are looked at, at least one in so many."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What the options say.

    Args:
        no_watch: leave the model alone.
        sink: sinks beside the recording, as in `--sink`.
        watch_every: one step in so many is looked at.
        watch_window: steps of a window.
    """

    no_watch: bool
    sink: tuple[str, ...]
    watch_every: int | None
    watch_window: int | None

    def __post_init__(self) -> None:
        given = [name for name in ("sink", "watch_every", "watch_window") if getattr(self, name)]
        if self.no_watch and given:
            option = f"--{given[0].replace('_', '-')}"
            raise UsageError(f"`no_watch` must stand without {option}, got both; leave one of them out")

    def open_sinks(self) -> list[Sink]:
        """Open the sinks that were asked for: before the long part, so that a wrong one is refused at once."""
        from embedwatch.sinks import open_sink

        return [open_sink(text) for text in self.sink]

    def window(self, steps: int) -> int:
        """Return the steps of a window in a run of so many steps."""
        return self.watch_window or max(LEAST_WINDOW, steps // WINDOWS)

    def every(self, steps: int) -> int:
        """Return how many steps there are to each that is looked at."""
        return self.watch_every or min(EVERY, max(1, self.window(steps) // LOOKS))

    def open(self, run: Path, *, steps: int, sinks: Sequence[Sink]) -> TrainerWatch | None:
        """Return a callback that watches a run and records it there; `None` where it is not to be watched."""
        if self.no_watch:
            return None
        from embedwatch.integrations.model_trainer import TrainerWatch

        return TrainerWatch(
            name=run.resolve().name,
            every=self.every(steps),
            window=self.window(steps),
            sinks=[*sinks, f"jsonl:{run / RECORDING_FILE}"],
        )


def watch_options(command: Command) -> Command:
    """Add the options that `WatchSettings` takes."""
    positive = click.IntRange(min=1)
    for option in (
        click.option(
            "--watch-window",
            type=positive,
            metavar="STEPS",
            help=f"Judge after so many; by default {WINDOWS} times in all, after {LEAST_WINDOW} at least.",
        ),
        click.option(
            "--watch-every",
            type=positive,
            metavar="STEPS",
            help=f"Look at one in so many; by default {EVERY}, or {LOOKS} times a window.",
        ),
        click.option(
            "--sink", multiple=True, metavar="NAME[:TARGET]", help="Deliver what is watched there too; repeatable."
        ),
        click.option("--no-watch", is_flag=True, help=f"Do not watch the model, and write no {RECORDING_FILE}."),
    ):
        command = option(command)
    return command


def conclusion(run: Path, watching: TrainerWatch) -> str:
    """Return in one line what was found, and where to look; or that there was nothing to train."""
    monitor = watching.monitor
    if monitor is None:
        return "nothing was trained, so nothing was watched"
    found = [verdict.status for verdict in monitor.findings]
    counts = ", ".join(f"{found.count(status)} {status}" for status in ("fail", "warn") if status in found)
    number = f"{len(found)} finding{'' if len(found) == 1 else 's'}"
    judged = sum(verdict.status != "unknown" for verdict in monitor.verdicts)
    return (
        f"{number}{f' ({counts})' if counts else ''} in {judged} verdicts at the end · {run / RECORDING_FILE} · "
        f"embedwatch show {run}"
    )


def conclusion_json(run: Path, watching: TrainerWatch | None) -> dict[str, Any]:
    """Return the same for machines: `null` where nobody looked."""
    monitor = None if watching is None else watching.monitor
    if monitor is None:
        return {"recording": None, "findings": None, "overhead": None}
    return {
        "recording": str(run / RECORDING_FILE),
        "findings": [verdict.to_json() for verdict in monitor.findings],
        "overhead": monitor.overhead,
    }
