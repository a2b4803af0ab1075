"""`embedwatch train`: train a Transformer on text, and go on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.options import debug_option, json_option, quiet_option, seed_option
from embedwatch.cli.train_watch import WatchSettings, conclusion, conclusion_json, watch_options
from embedwatch.core.errors import InputError
from embedwatch.core.sink import Sink

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.integrations.model_trainer import TrainerWatch
    from embedwatch_model.events import Outcome
    from embedwatch_model.run import RunSettings
    from embedwatch_model.training import Callback, Trainer

__all__ = ["train_command"]

EXIT_OK, EXIT_INTERRUPTED = 0, 130
OBJECTIVES = ("causal", "masked", "translation")
POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "relative", "none")
SCHEDULES = ("inverse_sqrt", "cosine", "restarts", "constant")
FILE = click.Path(path_type=Path)
CALLED_OTHERWISE = {"rate": "lr", "rule": "scale_lr", "precision": "bf16", "kind": "schedule"}
"""Settings of a training, with the parameter of the option that sets them."""


def _size(context: click.Context, option: click.Parameter, value: str) -> str | int:
    """Return a name as it is, anything else as a number of layers."""
    if value in ("tiny", "small", "base"):
        return value
    if not value.isdecimal() or int(value) == 0:
        raise click.BadParameter(f"must be tiny, small, base or a number of layers, got {value!r}; tiny has 2")
    return int(value)


@click.command("train", short_help="Train a Transformer on text.")
@click.argument("corpus", nargs=-1, type=FILE, metavar="[CORPUS...]")
@click.option("--out", type=FILE, required=True, metavar="RUN", help="Directory of the run; one that exists goes on.")
@click.option("--size", callback=_size, default="tiny", show_default=True, metavar="N", help="Layers; or small, base.")
@click.option("--objective", type=click.Choice(OBJECTIVES), default="causal", show_default=True, help="What to learn.")
@click.option("--parallel", nargs=2, type=FILE, metavar="SRC TGT", help="Two files that translate each other by line.")
@click.option("--positions", type=click.Choice(POSITIONS), default="rope", show_default=True, help="Position scheme.")
@click.option("--length", type=int, default=128, show_default=True, help="Tokens that the model reads at once.")
@click.option("--vocabulary", type=int, default=4096, show_default=True, help="The most tokens.")
@click.option("--dropout", type=float, default=0.1, show_default=True, help="Share of activations left out.")
@click.option("--steps", type=int, default=1000, show_default=True, help="Steps of the optimizer.")
@click.option("--batch", type=int, default=16, show_default=True, help="Sequences in a batch.")
@click.option("--accumulate", type=int, default=1, show_default=True, help="Batches that make a step.")
@click.option("--lr", type=float, default=1e-3, show_default=True, help="Peak learning rate, for 16 sequences a step.")
@click.option("--scale-lr", type=click.Choice(["linear", "sqrt"]), help="Scale it with the sequences of a step.")
@click.option("--schedule", type=click.Choice(SCHEDULES), default="cosine", show_default=True, help="Of the rate.")
@click.option("--warmup", type=int, metavar="STEPS", help="Steps to the peak; by default 5 % of all.")
@click.option("--smoothing", type=float, help="Label smoothing; by default 0.1 for translation, else 0.")
@click.option("--decay", type=float, default=0.1, show_default=True, help="Weight decay of matrices.")
@click.option("--decay-embeddings", is_flag=True, help="Let embedding tables decay too.")
@click.option("--clip", type=float, default=1.0, show_default=True, help="Limit of the gradients' global norm.")
@click.option("--validate-every", type=int, metavar="STEPS", help="By default ten times in all.")
@click.option("--save-every", type=int, metavar="STEPS", help="By default as often as it validates.")
@click.option("--patience", type=int, default=0, help="Stop after so many validations without progress; 0: never.")
@click.option("--bf16", is_flag=True, help="Multiply matrices in bfloat16.")
@seed_option("Of weights, order, masks and dropout.")
@watch_options
@json_option
@quiet_option
@debug_option
def train_command(
    *,
    out: Path,
    no_watch: bool,
    sink: tuple[str, ...],
    watch_every: int | None,
    watch_window: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Train a Transformer on text: decoder, encoder (--objective masked) or both (--objective translation).

    CORPUS is UTF-8 text; for translation a TSV of source and target, or give --parallel. Without one it reads the
    documentation of Python's standard library. The same command again goes on where the run was, bit for bit; Ctrl-C
    ends it with a checkpoint. RUN can be audited and generated from at any time.

    The model is watched while it learns: what is wrong is said when it comes and when it goes, and everything is
    recorded in RUN/embedwatch.jsonl. Watching changes no bit of the result, and is kept to about 1 % of the time.

    \b
    Examples:
      embedwatch train --out runs/docs --steps 500
      embedwatch train book.txt --out runs/book --size small --schedule inverse_sqrt
      embedwatch train --objective translation --parallel de.txt en.txt --out runs/de-en
    """
    from embedwatch.cli.option_names import in_options

    with in_options(train_command, **CALLED_OTHERWISE), _as_input_errors(), ExitStack() as stack:
        from embedwatch_model.run import open_run

        watch = WatchSettings(no_watch=no_watch, sink=sink, watch_every=watch_every, watch_window=watch_window)
        settings = _settings(**options)  # wrong options are refused before a sink is opened or anything is read
        sinks = [stack.enter_context(each) for each in watch.open_sinks()]
        trainer = open_run(out, settings, preparing=lambda: None if quiet else click.echo(f"preparing {out}", err=True))
        begun = trainer.latest_step
        outcome, watching = _train(out, trainer, watch, sinks, quiet=quiet, as_json=as_json)
    _report(out, outcome, begun, watching, as_json=as_json)
    return EXIT_INTERRUPTED if outcome.reason == "interrupted" else EXIT_OK


@contextmanager
def _as_input_errors() -> Iterator[None]:
    """Let errors of the model's package and of the disk be errors of ours."""
    from embedwatch_model.errors import ModelError

    try:
        yield
    except ModelError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"`out` must be writable, got {error.strerror}; choose another directory") from error


def _train(
    out: Path, trainer: Trainer, watch: WatchSettings, sinks: list[Sink], *, quiet: bool, as_json: bool
) -> tuple[Outcome, TrainerWatch | None]:
    """Train, show and watch it; whatever ends it, the last window is judged while it is still shown."""
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.cli.train_display import Findings

    _, terminal = open_terminals("auto")
    told = [] if as_json else [Findings(terminal, quiet=quiet)]
    watching = watch.open(out, steps=trainer.settings.schedule.steps, sinks=[*told, *sinks])
    with _display(terminal, watching, show=not quiet and not as_json) as shown:
        if watching is None:
            trainer.callbacks.extend(shown)
            return trainer.fit(), None
        trainer.callbacks.extend([watching, *shown])
        with watching:
            return trainer.fit(), watching


def _settings(
    *, corpus: tuple[Path, ...], parallel: tuple[Path, ...] | None, objective: str, size: str | int, **options: Any
) -> RunSettings:
    from embedwatch_model.run import RunSettings
    from embedwatch_model.schedules import Schedule, scale_rate
    from embedwatch_model.training_settings import TrainingSettings

    if parallel and (corpus or objective != "translation"):
        raise InputError("`parallel` must be the only corpus of --objective translation, got another; leave one out")
    steps, rate, smoothing = options["steps"], options["lr"], options["smoothing"]
    if options["scale_lr"]:
        rate = scale_rate(rate, batch=options["batch"] * options["accumulate"], base=16, rule=options["scale_lr"])
    every = options["validate_every"] or max(steps // 10, 1)
    schedule = Schedule(
        options["schedule"],
        steps=steps,
        warmup=max(steps // 20, 1) if options["warmup"] is None else options["warmup"],
        floor=0.0 if options["schedule"] == "restarts" else 0.1,
        period=max(steps // 7, 1) if options["schedule"] == "restarts" else 0,  # three periods: 1 + 2 + 4 sevenths
        growth=2.0 if options["schedule"] == "restarts" else 1.0,
    )
    training = TrainingSettings(
        rate=rate,
        schedule=schedule,
        smoothing=(0.1 if objective == "translation" else 0.0) if smoothing is None else smoothing,
        validate_every=every,
        save_every=options["save_every"] or every,
        precision="bf16" if options["bf16"] else "float32",
        **{name: options[name] for name in ("accumulate", "decay", "decay_embeddings", "clip", "patience", "seed")},
    )
    return RunSettings(
        objective=objective,
        corpus=tuple(str(path) for path in parallel or corpus),
        size=size,
        vocabulary=options["vocabulary"],
        batch=options["batch"],
        model={name: options[name] for name in ("positions", "length", "dropout")},
        training=training,
    )


def _report(out: Path, outcome: Outcome, begun: int, watching: TrainerWatch | None, *, as_json: bool) -> None:
    progress = outcome.progress
    if as_json:
        result = {"run": str(out), "reason": outcome.reason, "from_step": begun, **vars(progress)}
        result |= {"seconds": round(outcome.seconds, 3), **conclusion_json(out, watching)}
        click.echo(json.dumps(result, indent=2, ensure_ascii=False))
        return
    best = "" if progress.best is None else f" · best val {progress.best:.3f} at step {progress.best_step:,}"
    click.echo(f"{outcome.reason} at step {progress.step:,}{best} · {progress.clipped:,} steps clipped · {out}")
    if watching is not None:
        click.echo(conclusion(out, watching))


@contextmanager
def _display(terminal: Terminal, watching: TrainerWatch | None, *, show: bool) -> Iterator[list[Callback]]:
    """Yield what shows the training: a bar on a terminal, a line for each validation elsewhere, or nothing."""
    from embedwatch.cli.train_display import Bar, Lines

    def overhead() -> float | None:
        monitor = None if watching is None else watching.monitor
        return None if monitor is None else monitor.overhead

    if not show:
        yield []
    elif terminal.is_terminal:
        with Bar(terminal, overhead=overhead) as bar:
            yield [bar]
    else:
        yield [Lines(overhead=overhead)]
