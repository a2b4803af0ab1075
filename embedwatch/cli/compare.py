"""`embedwatch compare`: whether vectors differ from those of a reference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import EXIT_INTERNAL, EXIT_JUDGED, EXIT_OK, POOLINGS, progress_bar
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import color_option, debug_option, json_option, quiet_option

if TYPE_CHECKING:
    from embedwatch.comparing import Comparison

__all__ = ["compare_command"]


@click.command("compare", short_help="Say whether vectors differ from others, how surely, by how much, and where.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--model", metavar="MODEL", help="A and B are files of texts, one a line: encode both with this model.")
@click.option(
    "--pooling", type=click.Choice(POOLINGS), help="How token vectors become one; by default as the model says."
)
@click.option("--prefix", metavar="TEXT", help='Put before each text, like "query: "; by default as the model says.')
@click.option("--as", "kind", metavar="KIND", help="Read A and B as this kind; see `embedwatch list sources`.")
@click.option("--select", metavar="NAME", help="Array, tensor or column to read where a file holds several.")
@click.option(
    "--level",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of healthy pairs that may be called different, from 0.0005 on.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the permutations.")
@click.option(
    "--fail-on",
    type=click.Choice(["warn", "fail", "never"]),
    default="warn",
    show_default=True,
    help="Exit with 1 if a verdict is this grave or graver.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement, the foreign rows and the cells.")
@json_option
@quiet_option
@color_option
@debug_option
def compare_command(
    *, a: str, b: str, fail_on: str, verbose: bool, as_json: bool, quiet: bool, color: str, **options: Any
) -> int:
    """Compare B with A, the reference: is the difference more than chance, and large enough to matter?

    A and B are files of vectors or models, as `embedwatch audit` takes them; with --model they are files of texts. Rows
    count in their order: where a stream keeps to a topic for a while, blocks longer than that are compared. A needs
    200 rows at least, better 2,000 with 1,000 in B. Where there are too few independent rows the answer is `unknown`.

    \b
    Examples:
      embedwatch compare january.npy february.npy
      embedwatch compare old.txt new.txt --model ./my-model
      embedwatch compare a.parquet b.parquet --select embedding --level 0.001 --json
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.comparing import compare

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(compare_command):
        result = compare(a, b, progress=progress, **options)
    status = _exit_status(result, fail_on)
    if as_json:
        click.echo(json.dumps({**result.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.cli.compare_table import print_comparison

        print_comparison(terminal, result, status, verbose=verbose, quiet=quiet)
    for stage, name, count in result.errors:
        click.echo(f"embedwatch: {stage} {name!r} failed, {count} in all; what it would say is missing", err=True)
    return status


def _exit_status(result: Comparison, fail_on: str) -> int:
    """Return 1 if a verdict is grave enough or nothing could be judged, else 2 if something of ours failed, else 0."""
    counts = result.counts()
    grave = counts["fail"] + (counts["warn"] if fail_on == "warn" else 0)
    if counts["unknown"] or not result.verdicts or (grave and fail_on != "never"):
        return EXIT_JUDGED
    return EXIT_INTERNAL if result.errors else EXIT_OK
