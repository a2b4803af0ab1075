"""`embedwatch align check`: the same items in two spaces: may vectors of both meet?"""

from __future__ import annotations

import json
from typing import Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import compared_status, tell_errors
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import POOLINGS, color_option, debug_option, fails_from, json_option, quiet_option

__all__ = ["check_command"]


@click.command("check", short_help="Say whether vectors of two models may meet, and whether a map would do.")
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option("--text", metavar="FILE", help="LEFT, RIGHT or both are models: encode these texts, one a line.")
@click.option("--left-pooling", type=click.Choice(POOLINGS), help="How token vectors of the left model become one.")
@click.option("--right-pooling", type=click.Choice(POOLINGS), help="The same for the right model.")
@click.option("--left-prefix", metavar="TEXT", help='Put before each text for the left model, like "query: ".')
@click.option("--right-prefix", metavar="TEXT", help="The same for the right model.")
@click.option("--left-select", metavar="NAME", help="Array, tensor or column of the left file.")
@click.option("--right-select", metavar="NAME", help="The same of the right file.")
@click.option("--as", "kind", metavar="KIND", help="Read both as this kind; see `embedwatch list sources`.")
@click.option(
    "--join",
    type=click.Choice(["auto", "number", "name"]),
    default="auto",
    show_default=True,
    help="Pair rows by number or by name (an id column, words); auto by name where both have names.",
)
@click.option("--pairs", type=int, default=4_000, show_default=True, help="Pairs that are searched, a sample of all.")
@click.option("--gallery", type=int, metavar="ROWS", help="Rows of your index, for which recall is foretold.")
@click.option("--towers", is_flag=True, help="Both sides are towers of one model (image and text, query and document).")
@fails_from("warn", "Exit with 1 if the verdict is this grave or graver.")
@click.option("-v", "--verbose", is_flag=True, help="Print every measurement, the regions and the items served worst.")
@json_option
@quiet_option
@color_option
@debug_option
def check_command(
    *,
    left: str,
    right: str,
    towers: bool,
    fail_on: str,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    color: str,
    **options: Any,
) -> int:
    """Say what the spaces of LEFT and RIGHT, which hold the same items row by row, are to one another.

    They are files of vectors, or with --text models; dimensions may differ. The verdict is one of: identical, degraded
    (a drop-in that costs something), mismatch (one model, with another pooling, prefix, precision or truncation),
    alignable, weak, unrelated, mispaired, invalid. Similar is not compatible: what counts is what vectors of the one
    find in the other.

    \b
    Examples:
      embedwatch align check old.npy new.npy
      embedwatch align check old.parquet new.parquet --left-select embedding --gallery 1000000
      embedwatch align check ./old-model ./new-model --text texts.txt
      embedwatch align check ./e5 ./e5 --text texts.txt --left-prefix "query: " --right-prefix "passage: "
      embedwatch align check images.npy captions.npy --towers
    """
    from embedwatch.align.checking import check_pair
    from embedwatch.cli.terminals import open_terminals

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(check_command):
        found = check_pair(left, right, progress=progress, towers=towers, **options)
    status = compared_status(found.counts(), found.verdicts, found.errors, fail_on)
    if as_json:
        click.echo(json.dumps({**found.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        from embedwatch.cli.align.check_table import print_compatibility

        print_compatibility(terminal, found, (left, right), status, verbose=verbose, quiet=quiet)
    tell_errors(found.errors)
    return status
