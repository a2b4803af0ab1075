"""`embedwatch show`: the course of a recorded run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone

import click

from embedwatch.cli.exits import EXIT_JUDGED, EXIT_OK, is_grave, judged_any
from embedwatch.cli.options import color_option, debug_option, fail_on_option, json_option, quiet_option

__all__ = ["show_command"]


def _step_or_time(context: click.Context, parameter: click.Parameter, text: str | None) -> int | datetime | None:
    """Return a training step as a number, a date with or without a time as a time; without a zone it is UTC."""
    if text is None:
        return None
    if (number := text.replace(",", "")).isdecimal():
        return int(number)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no step and no time like 2026-11-30 or 2026-11-30T14:05"
        raise click.BadParameter(message, context, parameter) from error
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


@click.command("show", short_help="Show the course of a recorded run.")
@click.argument("run", metavar="RUN")
@click.option("--place", metavar="GLOB", help="Show these places only: token_table, 'layers.*'.")
@click.option("--metric", metavar="GLOB", help="Show these measurements only: 'norm_*'.")
@click.option("--all", "every", is_flag=True, help="Show every measurement, those with labels too.")
@click.option("--verdicts", is_flag=True, help="Show every verdict, not only what is or was wrong.")
@click.option(
    "--since", callback=_step_or_time, metavar="STEP|TIME", help="Show what came from this step or time (UTC) on."
)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show the last N windows of each space.")
@fail_on_option
@json_option
@quiet_option
@color_option
@debug_option
def show_command(
    *,
    run: str,
    place: str | None,
    metric: str | None,
    every: bool,
    verdicts: bool,
    since: int | datetime | None,
    last: int | None,
    fail_on: str,
    as_json: bool,
    quiet: bool,
    color: str,
) -> int:
    """Show what was recorded of a run: each measurement as a curve, and every verdict that is or was not ok.

    RUN is a folder that holds embedwatch.jsonl, or a file that the jsonl sink wrote. It may still be written to. A
    curve goes over the whole run, from its lowest to its highest value; a dot is a stretch without a value.

    The exit status is that of the newest verdicts of the places that are shown: 1 if one is at or above --fail-on,
    or if there is none but unknown ones; 0 otherwise, and always with --fail-on never.

    \b
    Examples:
      embedwatch show ./run
      embedwatch show ./run --place token_table --all
      embedwatch show ./run --metric 'norm_*' --since 5000
      embedwatch show audits.jsonl --last 20 --verdicts
      embedwatch show ./run -q --fail-on warn
    """
    from embedwatch.cli.option_names import in_options
    from embedwatch.cli.show_rows import choose_metrics, choose_places, rows_of, to_json
    from embedwatch.cli.show_table import print_recording, print_space
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.recording import read_recording

    with in_options(show_command):
        recording = read_recording(run, since=since, last=last)
    if place is not None:
        recording = choose_places(recording, place)
    counts = recording.counts()
    status = _exit_status(counts, fail_on)
    if metric is not None:
        recording = choose_metrics(recording, metric)
    if as_json:
        shown = {**to_json(recording, every=every), "counts": counts, "exit": status}
        click.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False, indent=2))
        return status
    terminal, _ = open_terminals(color)
    if not quiet:
        print_recording(terminal, recording)
    for recorded in recording.spaces:
        print_space(terminal, recorded, rows_of(recorded, every=every), verdicts=verdicts, quiet=quiet)
    told = [f"{count} {name}" for name, count in counts.items() if count]
    terminal.print((" · ".join(told) or "nothing was judged") + f"  (exit {status})", style="bold")
    return status


def _exit_status(counts: Mapping[str, int], fail_on: str) -> int:
    """Return 1 if a verdict is grave enough or nothing could be judged, unless that is never asked."""
    unjudged = fail_on != "never" and not judged_any(counts)
    return EXIT_JUDGED if unjudged or is_grave(counts, fail_on) else EXIT_OK
