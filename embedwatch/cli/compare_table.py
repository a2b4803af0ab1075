"""Prints a comparison: the verdict with whom to blame, then what was measured, then foreign rows and cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console as Terminal

from embedwatch.core.exhibit import Exhibit
from embedwatch.sinks._blame import blamed
from embedwatch.sinks.console import Console, print_paragraph

if TYPE_CHECKING:
    from embedwatch.comparison import Comparison, Segmented

__all__ = ["print_comparison"]


def print_comparison(terminal: Terminal, result: Comparison, status: int, *, verbose: bool, quiet: bool) -> None:
    """Print a comparison as a table that a person can read."""
    console = Console(terminal=terminal, verbose=verbose, quiet=quiet)
    console.write(result.snapshot, result.verdicts, result.exhibits)
    if verbose:
        for text in _shown(result.exhibits):
            print_paragraph(terminal, text, "", indent=2)
    if result.segmented is not None:
        _print_segments(terminal, console, result.segmented, verbose=verbose, quiet=quiet)
    counts = [f"{count} {name}" for name, count in result.counts().items() if count]
    terminal.print((" · ".join(counts) or "nothing could be judged") + f"  (exit {status})", style="bold")


def _print_segments(terminal: Terminal, console: Console, segmented: Segmented, *, verbose: bool, quiet: bool) -> None:
    """Print the segments that are not ok as tables, of the others one line each, and those that were left out."""
    for name, part in segmented.segments.items():
        if verbose or any(verdict.status != "ok" for verdict in part.verdicts):
            console.write(part.snapshot, part.verdicts, part.exhibits)
        elif not quiet:
            rows = f"{part.reference.rows:,} and {part.snapshot.provenance.rows:,} rows"
            print_paragraph(terminal, f"ok  {segmented.by} {name}: {rows}", "", indent=2)
    for name, reason in segmented.left_out.items():
        print_paragraph(terminal, f"left out  {segmented.by} {name}: {reason}", "", indent=2)


def _shown(exhibits: tuple[Exhibit, ...]) -> Iterator[str]:
    for exhibit in exhibits:
        for line in blamed([exhibit.name], {exhibit.name: exhibit}):
            yield f"{exhibit.caption} {line}"
