"""`embedwatch drill`: put known faults into a copy of one's own vectors, and see which check fires."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_INTERNAL, EXIT_JUDGED, EXIT_OK, tell_errors
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import (
    color_option,
    debug_option,
    json_option,
    model_option,
    quiet_option,
    reading_options,
    seed_option,
)
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    from embedwatch.drills.results import Drill

__all__ = ["drill_command"]

EVERY = "all"
"""Instead of a number: the strengths that each fault lists."""


@click.command("drill", short_help="Put known faults into a copy of vectors, and say which check fires how soon.")
@click.argument("source", metavar="SOURCE")
@click.option("--fault", "faults", metavar="NAME", multiple=True, help="Only this fault; see `embedwatch list faults`.")
@click.option(
    "--strength",
    "strengths",
    metavar="NUMBER",
    multiple=True,
    help='How strong, for the faults that are named, like 0.05 for 5 %; or "all", which takes those each fault lists.',
)
@click.option("--window", type=int, default=1_000, show_default=True, help="Rows that are looked at, at most.")
@click.option(
    "--level",
    type=float,
    default=0.001,
    show_default=True,
    help="Share of healthy looks at which a check may fire, from 0.0005 on.",
)
@click.option("--repeats", type=int, default=1, show_default=True, help="How often, each time with rows dealt anew.")
@seed_option("Of everything that is drawn.")
@click.option("--shuffle", is_flag=True, help="Take rows in any order: for a store whose order means nothing.")
@click.option("--other", metavar="PATH", help="Rows of another model, for the fault other_model.")
@model_option
@reading_options
@click.option(
    "--fail-on",
    type=click.Choice(["missed", "fired", "never"]),
    default="fired",
    show_default=True,
    help="Exit with 1 if a fault is missed, or if a check fires on healthy rows; missed includes fired.",
)
@json_option
@quiet_option
@color_option
@debug_option
def drill_command(
    *, source: str, strengths: tuple[str, ...], fail_on: str, as_json: bool, quiet: bool, color: str, **options: Any
) -> int:
    """Put known faults into a copy of SOURCE, healthy vectors, and show which check fires after how many rows.

    SOURCE is a file of vectors or a model, as `embedwatch audit` takes them; with --model it is a file of texts. Its
    rows are dealt to a reference and a fresh window, in blocks that are longer than they keep to a topic. Healthy rows
    come first: nothing may fire. Nothing is written, and SOURCE is not touched.

    \b
    Examples:
      embedwatch drill vectors.npy
      embedwatch drill vectors.parquet --select embedding --shuffle --repeats 20
      embedwatch drill texts.txt --model ./my-model --fault rotation --strength 2 --strength 5
      embedwatch drill vectors.npy --fault norm_growth --fault nan_rows --fail-on missed --json
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.drills.drilling import drill

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(drill_command, strength="strengths"):
        result = drill(source, strengths=_numbers(strengths), progress=progress, **options)
    status = _exit_status(result, fail_on)
    if as_json:
        click.echo(json.dumps({**result.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.cli.drill_table import print_drill

        print_drill(terminal, result, status, quiet=quiet)
    tell_errors(result.errors)
    return status


def _numbers(strengths: tuple[str, ...]) -> Any:
    """Return numbers, or the word for all."""
    if strengths == (EVERY,):
        return EVERY
    found = []
    for text in strengths:
        try:
            found.append(float(text))
        except ValueError:
            raise UsageError(f'`strengths` must be numbers, or "{EVERY}" alone, got {text!r}; 0.05 is 5 %') from None
    return tuple(found)


def _exit_status(result: Drill, fail_on: str) -> int:
    """Return 1 if healthy rows are not `ok` or a fault is missed, as asked; else 2 if something failed, else 0."""
    grave = result.status in ("fired", "unknown") or (result.status == "missed" and fail_on == "missed")
    if grave and fail_on != "never":
        return EXIT_JUDGED
    return EXIT_INTERNAL if result.errors else EXIT_OK
