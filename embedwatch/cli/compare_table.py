"""Prints a comparison: the verdict with whom to blame, then what was measured, then foreign rows and cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console as Terminal

from embedwatch.core.exhibit import Exhibit
from embedwatch.sinks._blame import blamed
from embedwatch.sinks.console import Console, print_paragraph

if TYPE_CHECKING:
    from embedwatch.comparing import Comparison

__all__ = ["print_comparison"]


def print_comparison(terminal: Terminal, result: Comparison, status: int, *, verbose: bool, quiet: bool) -> None:
    """Print a comparison as a table that a person can read."""
    console = Console(terminal=terminal, verbose=verbose, quiet=quiet)
    console.write(result.snapshot, result.verdicts, result.exhibits)
    if verbose:
        for text in _shown(result.exhibits):
            print_paragraph(terminal, text, "", indent=2)
    counts = [f"{count} {name}" for name, count in result.counts().items() if count]
    terminal.print((" · ".join(counts) or "nothing could be judged") + f"  (exit {status})", style="bold")


def _shown(exhibits: tuple[Exhibit, ...]) -> Iterator[str]:
    for exhibit in exhibits:
        for line in blamed([exhibit.name], {exhibit.name: exhibit}):
            yield f"{exhibit.caption} {line}"
