"""`embedwatch audit`: judge files of vectors and models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.exits import EXIT_INTERNAL, EXIT_JUDGED, EXIT_OK, is_grave, judged_any, tell_errors
from embedwatch.cli.options import (
    color_option,
    debug_option,
    fail_on_option,
    json_option,
    quiet_option,
    reading_options,
)

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.auditing import Audit
    from embedwatch.core.sink import Sink
    from embedwatch.reading import Progress

__all__ = ["audit_command", "progress_bar"]


@click.command("audit", short_help="Judge files of vectors, a model, its vectors of texts.")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--text", metavar="FILE", help="Encode this file, one text a line, with the model, and judge the vectors."
)
@click.option(
    "--labels", metavar="FILE|COLUMN", help="Group of each row: a file, one a line, or a column of the source."
)
@reading_options
@click.option("--deep", is_flag=True, help="Run a model, too, and examine what it does; --text and --prompts imply it.")
@click.option("--length", type=int, metavar="TOKENS", help="Examine a model for texts of this length.")
@click.option("--prompts", metavar="FILE", help="Let a model go on from these, one a line, and examine what it writes.")
@click.option("--corpus", metavar="FILE", help="Count a model's tokens in this file, one text a line.")
@click.option("--words", metavar="FILE|NAME", help="Groups of words: a file, or a name of those that come along.")
@click.option("--queries", metavar="FILE", help="Ask a FAISS index with these vectors; else with rows of its own.")
@click.option("--present", metavar="FILE", help="What the present model writes for ids of a FAISS index: is it stale?")
@click.option("--only", metavar="NAME", multiple=True, help="Keep this statistic, diagnostic, measurement or check.")
@click.option("--skip", metavar="NAME", multiple=True, help="Leave out such a one; both are repeatable.")
@fail_on_option
@click.option("--sink", "sinks", metavar="NAME[:TARGET]", multiple=True, help="Deliver there too: jsonl:out.jsonl.")
@click.option("--exhibits", is_flag=True, help="Make all exhibits, not only those that a verdict cites.")
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement.")
@json_option
@quiet_option
@color_option
@debug_option
def audit_command(
    *,
    paths: tuple[str, ...],
    fail_on: str,
    sinks: tuple[str, ...],
    verbose: bool,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> int:
    """Judge embedding spaces: files of vectors, token tables of models, vectors of texts.

    PATH is a file (.npy, .npz, .safetensors, .csv, .tsv, .parquet, .faiss, word2vec, GloVe), a model folder, or the
    name of a model in the local Hugging Face cache. Of a model its token table and its weights are judged; with --text
    its vectors of texts too, and what it does with them.

    \b
    Examples:
      embedwatch audit vectors.npy
      embedwatch audit ./my-model --text questions.txt
      embedwatch audit ./my-model --deep --length 4096
      embedwatch audit vectors.parquet --select embedding --labels topic
      embedwatch audit vectors.npy --only norms --only collapse --json
      embedwatch audit vectors.npy --fail-on warn --sink jsonl:audits.jsonl
    """
    from embedwatch.auditing import audit
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.sinks import open_sink

    terminal, errors = open_terminals(color)
    opened = [open_sink(spec) for spec in sinks]
    shown = verbose or bool(options["only"])  # what was asked for is shown, whether or not it is judged
    silent = as_json or any(spec.partition(":")[0] == "console" for spec in sinks)
    printer = [] if silent else [_printer(terminal, verbose=shown, quiet=quiet)]
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    try:
        result = audit(*paths, sinks=[*printer, *opened], progress=progress, **options)
    finally:
        for sink in opened:
            sink.close()
    status = _exit_status(result, fail_on)
    if as_json:
        click.echo(json.dumps({**result.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        terminal.print(_final_line(result, status), style="bold")
    tell_errors(result.errors)
    return status


def _exit_status(result: Audit, fail_on: str) -> int:
    """Return 1 if a verdict is grave enough or nothing could be judged, else 2 if something of ours failed, else 0."""
    counts = result.counts()
    if not judged_any(counts) or is_grave(counts, fail_on):
        return EXIT_JUDGED
    return EXIT_INTERNAL if result.errors else EXIT_OK


def _final_line(result: Audit, status: int) -> str:
    counts = [f"{count} {name}" for name, count in result.counts().items() if count]
    return (" · ".join(counts) or "nothing could be judged") + f"  (exit {status})"


def _printer(terminal: Terminal, *, verbose: bool, quiet: bool) -> Sink:
    from embedwatch.sinks.console import Console

    return Console(terminal=terminal, verbose=verbose, quiet=quiet)


def progress_bar(terminal: Terminal) -> Progress:
    """Return a progress bar on the terminal that goes away when the work is done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    @contextmanager
    def show(description: str, rows: int | None) -> Iterator[Callable[[int], None]]:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=terminal, transient=True) as bar:
            task = bar.add_task(description, total=rows)
            yield lambda done: bar.update(task, completed=done)

    return show
