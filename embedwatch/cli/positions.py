"""`embedwatch positions`: how a model tells places in a text apart, and how far that carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_INTERNAL, EXIT_JUDGED, EXIT_OK, is_grave, judged_any, tell_errors
from embedwatch.cli.options import color_option, debug_option, fail_on_option, json_option, quiet_option, seed_option
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.judged import Judged

__all__ = ["positions_command"]

PLACE = "positions"
MOST_TEXT, MOST_TEXTS = 4_000_000, 100_000
"""Characters and lines of a file of texts that are read."""


@click.command("positions", short_help="Judge how a model tells places in a text apart, and how far that carries.")
@click.argument("model", metavar="MODEL")
@click.option("--length", type=int, metavar="N", help="Tokens of the longest text; by default what it is made for.")
@click.option("--deep", is_flag=True, help="Run the model too: attention by distance, predictions by depth.")
@click.option("--text", metavar="FILE", help="Texts to run it on, one a line; by default prose that comes with Python.")
@seed_option("Of everything that is drawn.")
@fail_on_option
@click.option("--exhibits", is_flag=True, help="Make all exhibits, not only those that a verdict cites.")
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement.")
@json_option
@quiet_option
@color_option
@debug_option
def positions_command(
    *,
    model: str,
    length: int | None,
    deep: bool,
    text: str | None,
    seed: int,
    fail_on: str,
    exhibits: bool,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    color: str,
) -> int:
    """Judge the positions of MODEL: a model folder, or the name of a model in the local Hugging Face cache.

    Told are the scheme, its periods and what is covered of them, the nearest place that is taken for another, phases
    that training never saw, rounding, and what the tables hold. With --deep the model is run: whether start and end of
    a text are one place to it, where predictions fall off, and which θ its weights were trained with.

    \b
    Examples:
      embedwatch positions ./my-model
      embedwatch positions ./my-model --length 32768
      embedwatch positions ./my-model --length 4096 --deep --text texts.txt
      embedwatch positions ./my-model --json
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.core.boundary import Boundary
    from embedwatch.diagnosing import diagnose
    from embedwatch.inquiry import Inquiry
    from embedwatch.loading.position_parts import read_parts
    from embedwatch.loading.subject import load_subject
    from embedwatch.reading import silent
    from embedwatch.sinks._blame import one_line

    if length is not None and length < 2:
        raise UsageError(f"`length` must be at least 2, got {length}; give the tokens of the longest text")
    terminal, errors = open_terminals(color)
    progress = silent if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    subject = load_subject(model)
    scheme = read_parts(subject).scheme
    inquiry = Inquiry(subject, texts=_texts(text), length=length, deep=deep or text is not None, seed=seed)
    boundary = Boundary()
    found = diagnose(inquiry, places=(PLACE,), exhibits=exhibits, boundary=boundary, progress=progress)
    counted = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
    status = _exit_status(found, fail_on, failed=bool(counted), known=bool(scheme.kinds))
    words = scheme.words or ", ".join(scheme.kinds) or "unknown"
    if as_json:
        _print_json(found, counted, {"kinds": list(scheme.kinds), "words": words}, status)
    else:
        if not quiet:
            terminal.print(one_line(f"{subject.label}: {words}"), style="bold", highlight=False, markup=False)
        _print(terminal, found, status, quiet=quiet, verbose=verbose)
    tell_errors(counted)
    return status


def _texts(path: str | None) -> tuple[str, ...]:
    if path is None:
        return ()
    from embedwatch.sources.texts import first_texts

    found, read = [], 0
    for text in first_texts(Path(path), MOST_TEXTS):
        found.append(text[: MOST_TEXT - read])
        read += len(text)
        if read >= MOST_TEXT:
            break
    return tuple(found)


def _exit_status(found: list[Judged], fail_on: str, *, failed: bool, known: bool) -> int:
    """Return 1 if a verdict is grave enough, or nothing could be judged of positions that are known, else 2 or 0."""
    counts = _counts(found)
    if is_grave(counts, fail_on) or (not judged_any(counts) and not known):
        return EXIT_JUDGED
    return EXIT_INTERNAL if failed else EXIT_OK


def _counts(found: list[Judged]) -> dict[str, int]:
    from embedwatch.core.verdict import STATUSES

    statuses = [verdict.status for judged in found for verdict in judged.verdicts]
    return {status: statuses.count(status) for status in reversed(STATUSES)}


def _print_json(
    found: list[Judged], errors: tuple[tuple[str, str, int], ...], scheme: dict[str, Any], status: int
) -> None:
    data = {
        "scheme": scheme,
        "counts": _counts(found),
        "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in errors],
        "spaces": [judged.to_json() for judged in found],
        "exit": status,
    }
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def _print(terminal: Terminal, found: list[Judged], status: int, *, quiet: bool, verbose: bool) -> None:
    from embedwatch.sinks.console import Console

    sink = Console(terminal=terminal, verbose=verbose, quiet=quiet)
    for judged in found:
        sink.write(judged.snapshot, judged.verdicts, judged.exhibits)
    counts = [f"{count} {name}" for name, count in _counts(found).items() if count]
    terminal.print((" · ".join(counts) or "nothing could be judged") + f"  (exit {status})", style="bold")
