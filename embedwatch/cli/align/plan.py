"""`embedwatch align plan`: the stages of a move to a new model, measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import color_option, debug_option, json_option, quiet_option
from embedwatch.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.align.planning import MigrationPlan

__all__ = ["plan_command"]

LONGEST_NUMBER = 18
"""Digits of a row number."""


@click.command("plan", short_help="Measure each stage of a move to a new model on your rows.")
@click.argument("aligner", metavar="ALIGNER")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--queries", metavar="FILE", help="Queries as the new model embeds them; else documents are held out.")
@click.option("--old-queries", metavar="FILE", help="The same queries as the old model embeds them.")
@click.option("--relevant", metavar="FILE", help="For each query, one a line, the row of the document to be found.")
@click.option(
    "--side",
    type=click.Choice(["query", "corpus"]),
    help="query: the map leads from the new model to the old one; corpus: the other way. By default as the dimensions "
    "say, or else the side for which ALIGNER was fitted.",
)
@click.option(
    "--metric",
    type=click.Choice(["cosine", "dot", "euclidean"]),
    default="cosine",
    show_default=True,
    help="How your vectors are compared.",
)
@click.option("-k", "k", type=click.IntRange(1, 1000), default=10, show_default=True, help="Answers that count.")
@click.option(
    "--share",
    "shares",
    type=float,
    multiple=True,
    default=(0.25, 0.5, 0.75),
    show_default=True,
    help="Share of documents embedded again at which stages are measured; repeatable.",
)
@json_option
@quiet_option
@color_option
@debug_option
def plan_command(
    *, aligner: str, old: str, new: str, relevant: str | None, as_json: bool, quiet: bool, color: str, **options: Any
) -> int:
    """Measure a move from the model of OLD to that of NEW: bridge, two indexes while embedding again, cutover.

    OLD are documents as the old model embedded them, a file of vectors or a FAISS index; NEW the same documents, row by
    row, as the new model does. ALIGNER leads from one model to the other. A single index with documents of both is
    refused where old documents get more or less than their fair share of the first answers; the exit status is then 1.

    \b
    Examples:
      embedwatch align plan bridge docs.faiss new.npy
      embedwatch align plan bridge old.npy new.npy --queries q.npy --old-queries q-old.npy --relevant found.txt
    """
    from embedwatch.align.aligner import load_aligner
    from embedwatch.align.planning import plan_migration
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.sources import open_source

    terminal, _ = open_terminals(color)
    with in_options(plan_command):
        for name in ("queries", "old_queries"):
            options[name] = None if options[name] is None else open_source(options[name])
        rows = None if relevant is None else _numbers(relevant)
        plan = plan_migration(load_aligner(aligner), open_source(old), open_source(new), relevant=rows, **options)
    status = 1 if plan.mixing_refused else 0
    if as_json:
        click.echo(json.dumps({**plan.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        _show(terminal, plan, quiet=quiet, status=status)
    return status


def _numbers(path: str) -> list[int]:
    """Return the whole numbers of a file, one a line."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # a path that people typed
            lines = [(number, line.strip()) for number, line in enumerate(file, 1) if line.strip()]
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}; name a file of numbers") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} must hold one row number a line, got bytes that are no text; write one") from None
    for number, line in lines:
        if not (line.isascii() and line.isdigit() and len(line) <= LONGEST_NUMBER):
            raise InputError(
                f"{path}:{number} must hold a row number, got {line[:LONGEST_NUMBER]!r}; write one for each query"
            )
    return [int(line) for _, line in lines]


def _show(terminal: Terminal, plan: MigrationPlan, *, quiet: bool, status: int) -> None:
    from rich.table import Table

    from embedwatch.sinks._blame import one_line

    if not quiet:
        way = "new queries to old documents" if plan.side == "query" else "old documents to new queries"
        terminal.print(
            f"{plan.documents:,} documents, {plan.queries:,} queries; the map leads {way}; recall: {plan.truth}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    table = Table(box=None, pad_edge=False)
    for name in ("stage", "again", f"recall@{plan.k}", "95 %", "of old", "old share (fair)", ""):
        table.add_column(name, justify="left" if name in ("stage", "") else "right", no_wrap=True)
    for stage in plan.stages:
        old = "" if stage.old_recall is None else f"{stage.old_recall:.3f}"
        share = "" if stage.old_share is None else f"{stage.old_share:.2f} ({stage.fair_share:.2f})"
        verdict = "refused" if stage.refused else ""
        table.add_row(
            f"{stage.name}: {stage.title}", f"{stage.embedded:.0%}", f"{stage.recall:.3f}",
            f"{stage.low:.3f}-{stage.high:.3f}", old, share, verdict,
        )  # fmt: skip
    terminal.print(table)
    for stage in plan.stages:
        if stage.refused:
            terminal.print(f"mixed at {stage.embedded:.0%}: {one_line(stage.refused)}", markup=False, soft_wrap=True)
    for note in () if quiet else plan.notes:
        terminal.print(f"note: {one_line(note)}", markup=False, soft_wrap=True)
    terminal.print(f"bridge, then two indexes while embedding again, then cutover  (exit {status})", style="bold")
