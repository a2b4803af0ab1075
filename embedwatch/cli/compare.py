"""`embedwatch compare`: whether vectors differ from those of a reference."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_OK, compared_status, tell_errors
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import (
    color_option,
    debug_option,
    fails_from,
    json_option,
    model_option,
    quiet_option,
    reading_options,
    seed_option,
)
from embedwatch.core.errors import UsageError

if TYPE_CHECKING:
    pass

__all__ = ["compare_command"]


@click.command("compare", short_help="Say whether vectors differ from others, how surely, by how much, and where.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@model_option
@reading_options
@click.option(
    "--level",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of healthy pairs that may be called different, from 0.0005 on.",
)
@click.option("--by", metavar="COLUMN", help="Column with the segment of each row: compare each, and their mix.")
@seed_option("Of the permutations.")
@fails_from("warn")
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement, the foreign rows and the cells.")
@json_option
@quiet_option
@color_option
@debug_option
def compare_command(
    *, a: str, b: str, fail_on: str, verbose: bool, as_json: bool, quiet: bool, color: str, **options: Any
) -> int:
    """Compare B with A, the reference: is the difference more than chance, and large enough to matter?

    A and B are files of vectors or models, as `embedwatch audit` takes them; with --model they are files of texts.
    A may also be the folder of a reference, from `embedwatch reference create`: then nothing is fitted. Rows count in
    their order: where a stream keeps to a topic for a while, blocks longer than that are compared. A needs 200 rows at
    least, better 2,000 with 1,000 in B. Where there are too few independent rows the answer is `unknown`.

    With --by each segment is compared by itself, the mix of segments too, and the whole at the shares that A has.

    Two JSON files, of `embedwatch audit --json` or a recording, or a reference and one, are put side by side: what
    each measurement was and is, without a verdict; the exit status is then 0.

    \b
    Examples:
      embedwatch compare january.npy february.npy
      embedwatch compare ./healthy new.npy
      embedwatch compare old.txt new.txt --model ./my-model
      embedwatch compare a.parquet b.parquet --select embedding --level 0.001 --json
      embedwatch compare a.parquet b.parquet --select embedding --by language
      embedwatch compare january.json february.json
    """
    from embedwatch.cli.terminals import open_terminals
    from embedwatch.snapshot_changes import compare_snapshots, holds_snapshots

    terminal, errors = open_terminals(color)
    if holds_snapshots(a) or holds_snapshots(b):
        _require_snapshots(a, b, options)
        changes = compare_snapshots(a, b)
        if as_json:
            click.echo(json.dumps({**changes.to_json(), "exit": EXIT_OK}, ensure_ascii=False, indent=2))
        else:
            from embedwatch.cli.changes_table import print_changes

            print_changes(terminal, changes, verbose=verbose)
        return EXIT_OK
    from embedwatch.comparing import compare

    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(compare_command):
        result = compare(a, b, progress=progress, **options)
    status = compared_status(result.counts(), result.verdicts, result.errors, fail_on)
    if as_json:
        click.echo(json.dumps({**result.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.cli.compare_table import print_comparison

        print_comparison(terminal, result, status, verbose=verbose, quiet=quiet)
    tell_errors(result.errors)
    return status


def _require_snapshots(a: str, b: str, options: Mapping[str, Any]) -> None:
    """Refuse measured states beside vectors or models, and options that only these have."""
    from embedwatch.snapshot_changes import holds_snapshots

    for path in (a, b):
        if not holds_snapshots(path) and not Path(path, "reference.json").is_file():
            raise UsageError(
                f"{path} must be snapshots as JSON or a reference, like the other, got something else; compare rows "
                "with rows, or write it with `embedwatch audit --json`"
            )
    given = [name for name in ("model", "pooling", "prefix", "kind", "select", "by") if options.get(name) is not None]
    if given:
        option = "as" if given[0] == "kind" else given[0]
        raise UsageError(f"`--{option}` must be left out for snapshots, got {options[given[0]]!r}; it is for rows")
