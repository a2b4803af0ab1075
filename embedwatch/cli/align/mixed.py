"""`embedwatch align mixed`: rows of a store that the present model did not write, or not in this way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from embedwatch.cli.audit import progress_bar
from embedwatch.cli.exits import EXIT_JUDGED, EXIT_OK, is_grave
from embedwatch.cli.option_names import in_options
from embedwatch.cli.options import POOLINGS, color_option, debug_option, fails_from, json_option, quiet_option

if TYPE_CHECKING:
    from rich.console import Console as Terminal

    from embedwatch.align.mixed_results import Group, Mixed

__all__ = ["mixed_command"]

SHOWN = 4


@click.command("mixed", short_help="Find rows of a store that the model did not write, or not in this way.")
@click.argument("store", metavar="STORE")
@click.option("--model", metavar="MODEL", help="What should have written the rows; with --text.")
@click.option("--text", metavar="FILE", help="The text of each row, one a line, in the order of the store.")
@click.option("--expected", metavar="FILE", help="Instead of both: what the model writes for each row.")
@click.option("--pooling", type=click.Choice(POOLINGS), help="How the model's token vectors become one.")
@click.option("--prefix", metavar="TEXT", help="Put before each text; by default as the model says.")
@click.option("--as", "kind", metavar="KIND", help="Read the store as this kind; see `embedwatch list sources`.")
@click.option("--select", metavar="NAME", help="Array, tensor or column of the store.")
@click.option(
    "--join",
    type=click.Choice(["auto", "number", "name"]),
    default="auto",
    show_default=True,
    help="Pair rows by number or by name; auto by name where both have names.",
)
@fails_from("warn", "Exit with 1 if a group is this grave or graver.")
@json_option
@quiet_option
@color_option
@debug_option
def mixed_command(*, store: str, fail_on: str, as_json: bool, quiet: bool, color: str, **options: Any) -> int:
    """Compare each row of STORE with what the model writes for its text now, and group those that differ by cause.

    Groups: fewer bits, another length, the same model used otherwise (pooling, prefix and limits of tokens are tried,
    and named where they reproduce the rows), another model or text, swapped rows, NaN and zeros. Without model and
    texts only what shows in the rows themselves is told.

    \b
    Examples:
      embedwatch align mixed store.npy --model ./my-model --text texts.txt
      embedwatch align mixed store.parquet --select embedding --expected now.npy --json
      embedwatch align mixed store.npy
    """
    from embedwatch.align.mixed import find_mixed
    from embedwatch.cli.terminals import open_terminals

    terminal, errors = open_terminals(color)
    progress = None if quiet or as_json or not errors.is_terminal else progress_bar(errors)
    with in_options(mixed_command):
        found = find_mixed(store, progress=progress, **options)
    status = EXIT_JUDGED if is_grave(found.counts(), fail_on) else EXIT_OK
    if as_json:
        click.echo(json.dumps({**found.to_json(), "exit": status}, ensure_ascii=False, indent=2))
    else:
        _print(terminal, found, status, quiet=quiet)
    return status


def _print(terminal: Terminal, found: Mixed, status: int, *, quiet: bool) -> None:
    """Print a line for each group, with the first rows of those that differ."""
    from rich.text import Text

    from embedwatch.sinks._blame import one_line
    from embedwatch.sinks.console import STYLES, print_paragraph

    if not quiet:
        terminal.print(f"{one_line(found.label)} · {found.rows:,} rows", style="bold", markup=False)
    for group in found.groups:
        if quiet and group.status == "ok":
            continue
        apart = "" if group.distance is None else f"   1 - cosine {group.distance:.2g}"
        line = Text("  ").append(f"{group.status:<6}", style=STYLES[group.status])
        terminal.print(line.append(f"{group.rows:>9,}  {one_line(group.told)}{apart}"), soft_wrap=True)
        if group.status != "ok":
            print_paragraph(terminal, _ids(group), "dim", indent=19)
    if found.threshold is not None and found.false_positives is not None and not quiet:
        told = (
            f"agreeing rows lie within {found.threshold:.2g} of what the model writes; of them at most "
            f"{found.false_positives:.2%} are told as others (95 %)"
        )
        print_paragraph(terminal, told, "", indent=2)
    for note in () if quiet else found.notes:
        print_paragraph(terminal, note, "dim", indent=2)
    terminal.print(f"{found.status}  (exit {status})", style="bold")


def _ids(group: Group) -> str:
    names = [
        str(number) if name == str(number) else f"{number} {name}"
        for number, name in zip(group.ids[:SHOWN], group.names, strict=False)
    ]
    return f"rows {', '.join(names)}{', …' if group.rows > len(names) else ''}"
