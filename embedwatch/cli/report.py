"""`embedwatch report`: what was judged as a page with pictures, as Markdown, as JUnit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import (
    EXIT_INTERNAL,
    EXIT_JUDGED,
    EXIT_OK,
    compared_status,
    is_grave,
    judged_any,
    tell_errors,
)
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import (
    color_option,
    debug_option,
    fails_from,
    json_option,
    model_option,
    quiet_option,
    reading_options,
)
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    from embedwatch.reading import Progress
    from embedwatch.report import Report

__all__ = ["report_command"]

ENDINGS = {".md": "md", ".markdown": "md", ".xml": "junit", ".html": "html", ".htm": "html"}
MOST_POINTS = 50_000
TWO_SIDED = ("comparison", "pair")
OF_AUDIT = ("text", "labels", "deep", "length", "prompts", "corpus", "words", "only", "skip")
OF_READING = ("pooling", "prefix", "kind", "select")


@click.command("report", short_help="Write what was judged as one page with pictures.")
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@click.option(
    "-o", "--output", metavar="FILE", help="Write it there; .html, .md or .xml. By default to standard output."
)
@click.option(
    "--format",
    "kind_of_file",
    type=click.Choice(["html", "md", "junit"]),
    help="What to write; by default as the ending of --output says, else html.",
)
@click.option("--against", metavar="FILE|REFERENCE", help="Compare INPUT with these rows, or with a saved reference.")
@click.option("--pair", nargs=2, metavar="A B", help="Two spaces of the same items, as `align check` takes them.")
@click.option("--title", metavar="TEXT", default="", help="What stands above it; by default what was looked at.")
@click.option(
    "--points",
    type=click.IntRange(0, MOST_POINTS),
    default=MOST_POINTS,
    show_default=True,
    help="Rows of a map of the space, at most; 0 draws none.",
)
@click.option("--text", metavar="FILE", help="Encode this file, one text a line, with the model or models.")
@click.option("--labels", metavar="FILE|COLUMN", help="Group of each row: a file, one a line, or a column.")
@model_option
@reading_options
@click.option("--deep", is_flag=True, help="Run a model, too, and examine what it does.")
@click.option("--length", type=int, metavar="TOKENS", help="Examine a model for texts of this length.")
@click.option("--prompts", metavar="FILE", help="Let a model go on from these, and examine what it writes.")
@click.option("--corpus", metavar="FILE", help="Count a model's tokens in this file, one text a line.")
@click.option("--words", metavar="FILE|NAME", help="Groups of words: a file, or a name of those that come along.")
@click.option("--only", metavar="NAME", multiple=True, help="Keep this statistic, diagnostic, measurement or check.")
@click.option("--skip", metavar="NAME", multiple=True, help="Leave out such a one; both are repeatable.")
@fails_from(
    None, "Exit with 1 if a verdict is this grave or graver; by default fail, and warn with --against and --pair."
)
@json_option
@quiet_option
@color_option
@debug_option
def report_command(
    *,
    inputs: tuple[str, ...],
    output: str | None,
    kind_of_file: str | None,
    fail_on: str | None,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> int:
    """Write what was judged as one file that needs nothing else: verdicts first, then pictures of each space.

    INPUT is a file of vectors or a model, several of them in their order for checkpoints of one model; or results that
    are there already: the folder of a run or its recording (.jsonl), or JSON that `audit`, `compare` or `align check`
    printed. With --against INPUT is compared with a reference, with --pair two spaces are.

    Verdicts and exit status are those of these commands. The page asks nothing of the network; it can be mailed or
    archived. --json prints what the command behind it would print, so that one run gives both.

    \b
    Examples:
      embedwatch report ./my-model --text texts.txt --deep -o report.html
      embedwatch report vectors.parquet --select embedding --labels topic -o report.html
      embedwatch report step-100 step-200 step-300 -o training.html
      embedwatch report new.npy --against old.npy -o moved.html
      embedwatch report --pair old.npy new.npy -o pair.html
      embedwatch report ./run -o run.html
      embedwatch report ./my-model --format md > comment.md
      embedwatch report vectors.npy -o results.xml
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.report import to_junit, to_markdown, to_page
    from embedwatch.whole_files import write_whole

    terminal, errors = open_terminals(color)
    wanted = kind_of_file or ENDINGS.get(Path(output or "").suffix.lower(), "html")
    if as_json and output is None:
        raise UsageError("`--output` must be given with --json, which takes standard output, got none; name a file")
    if output is not None:
        _require_folder(Path(output))
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(report_command):
        report = _gathered(inputs, options, progress)
    two_sided = report.kind in TWO_SIDED
    fail_on = fail_on or ("warn" if two_sided else "fail")
    if wanted == "html":
        text = to_page(report)
    else:
        text = to_markdown(report) if wanted == "md" else to_junit(report, fail_on=fail_on)
    status = _exit_status(report, fail_on, two_sided=two_sided)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(Path(output), text.encode("utf-8", "replace"))
    if as_json:
        click.echo(json.dumps({**report.result, "exit": status}, ensure_ascii=False, indent=2))
    elif output is not None and not quiet:
        counts = " · ".join(f"{count} {name}" for name, count in report.counts().items() if count)
        size = f"{len(text.encode()) / 1e6:.1f} MB"
        terminal.print(
            f"{output} ({size}): {counts or 'nothing could be judged'}  (exit {status})", style="bold", markup=False
        )
    tell_errors(report.errors)
    return status


def _gathered(inputs: tuple[str, ...], options: dict[str, Any], progress: Progress | None) -> Report:
    """Return the report of what was named."""
    from embedwatch.report import gathering

    against, pair, title, points = (options.pop(name) for name in ("against", "pair", "title", "points"))
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    if pair:
        _refuse(given, ("text",), "with --pair")
        if inputs or against is not None:
            raise UsageError(f"`--pair` must stand alone, got {inputs[0] if inputs else against} too; leave that out")
        return gathering.report_pair(*pair, title=title, progress=progress, **given)
    if not inputs:
        raise UsageError("`INPUT` must be named, got none; give a file, a model, a run, or --pair A B")
    if against is not None:
        _refuse(given, ("model", *OF_READING), "with --against")
        if len(inputs) > 1:
            raise UsageError(f"`INPUT` must be one with --against, got {len(inputs)}; compare them in turn")
        return gathering.report_comparison(against, inputs[0], title=title, points=points, progress=progress, **given)
    if any(map(gathering.was_written, inputs)) and "kind" not in given:
        _refuse(given, (), "for results that were written before")
        if len(inputs) > 1:
            raise UsageError(f"`INPUT` must be one where it is results, got {len(inputs)}; report them in turn")
        return gathering.report_written(inputs[0], title)
    _refuse(given, (*OF_AUDIT, *OF_READING), "without --against")
    return gathering.report_audit(inputs, title=title, points=points, progress=progress, **given)


def _refuse(given: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse options that say nothing about this input."""
    for name, value in given.items():
        if name not in known:
            option = "as" if name == "kind" else name
            raise UsageError(f"`--{option}` must be left out {where}, got {value!r}; it would say nothing there")


def _require_folder(path: Path) -> None:
    """Refuse at once what cannot be written, before minutes of work."""
    if path.is_dir():
        raise UsageError(f"`--output` must be a file, got the folder {path}; name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"`--output` must lie in a folder that exists, got {path}; make {path.parent}")


def _exit_status(report: Report, fail_on: str, *, two_sided: bool) -> int:
    """Return the exit status of the command behind: of two sides `unknown` is no answer, elsewhere it is if all are."""
    counts = report.counts()
    if two_sided:
        return compared_status(counts, report.verdicts, report.errors, fail_on)
    if not judged_any(counts) or is_grave(counts, fail_on):
        return EXIT_JUDGED
    return EXIT_INTERNAL if report.errors else EXIT_OK
