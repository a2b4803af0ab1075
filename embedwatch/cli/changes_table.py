"""Prints two measured states side by side."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.sinks._blame import format_number
from embedwatch.sinks.console import pad, print_paragraph
from embedwatch.snapshot_changes import NO_SURENESS

if TYPE_CHECKING:
    from embedwatch.snapshot_changes import Change, SnapshotChanges

__all__ = ["print_changes"]

HEADER = ("before", "after", "change")
UNKNOWN = "-"


def print_changes(terminal: Terminal, found: SnapshotChanges, *, verbose: bool) -> None:
    """Print a table of what changed; of what did not, only where all is asked for."""
    terminal.print(Text(f"{found.before} → {found.after}", style="bold"))
    print_paragraph(terminal, NO_SURENESS, "dim", indent=2)
    for space, changes in groupby(found.changes, key=lambda change: change.space):
        shown = [change for change in changes if verbose or change.before != change.after]
        rows = [HEADER, *(_row(change) for change in shown)]
        titles = ["", *(change.key.replace("_", " ") for change in shown)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
        longest = max(map(len, titles))
        terminal.print(Text(f"{space.place}/{space.segment}", style="bold"))
        for title, row in zip(titles, rows, strict=True):
            cells = [pad(cell, width, right=True) for cell, width in zip(row, widths, strict=True)]
            terminal.print(Text(f"  {pad(title, longest)}  {'  '.join(cells)}"), soft_wrap=True)
        if not shown:
            print_paragraph(terminal, "nothing changed", "", indent=2)
    for spaces, name in ((found.only_before, found.before), (found.only_after, found.after)):
        for space in spaces:
            print_paragraph(terminal, f"only in {name}: {space}", "", indent=2)


def _row(change: Change) -> tuple[str, str, str]:
    numbers = [UNKNOWN if number is None else format_number(number) for number in (change.before, change.after)]
    quotient = change.quotient
    if quotient is not None and quotient > 0:
        return numbers[0], numbers[1], f"×{format_number(quotient)}"
    difference = change.difference
    return numbers[0], numbers[1], UNKNOWN if difference is None else f"{difference:+.3g}"
