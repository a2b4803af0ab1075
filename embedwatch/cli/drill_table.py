"""Prints a drill: healthy rows first, then a line for each fault with what found it and how soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console as Terminal
from rich.text import Text

from embedwatch.sinks._blame import format_number, one_line
from embedwatch.sinks.console import pad, print_paragraph

if TYPE_CHECKING:
    from embedwatch.drills.results import Drill, Trial

__all__ = ["print_drill"]

STYLES = {
    "ok": "green",
    "found": "green",
    "noticed": "yellow",
    "missed": "yellow",
    "fired": "bold red",
    "unknown": "magenta",
    "blind": "magenta",
    "impossible": "dim",
}
INDENT = 14
FAULTS = ("found", "noticed", "missed", "blind", "impossible")


def print_drill(terminal: Terminal, result: Drill, status: int, *, quiet: bool) -> None:
    """Print a drill as a table that a person can read.

    Args:
        terminal: where.
        result: what was found.
        status: with which the command will exit.
        quiet: print only what is not as it should be.
    """
    lines = [result.control, *result.trials]
    shown = [trial for trial in lines if not quiet or trial.status not in ("ok", "found")]
    if shown:
        _print_heading(terminal, result)
    titles = max((len(trial.title) for trial in shown), default=0)
    strengths = max((len(trial.told) for trial in shown), default=0)
    for trial in shown:
        text = Text("  ")
        text.append(pad(trial.status, 10), style=STYLES[trial.status])
        text.append(f"  {pad(trial.title, titles)}  {pad(trial.told, strengths, right=True)}  ")
        text.append(_how(trial, result.window))
        terminal.print(text, soft_wrap=True)
        for reason in _why(trial, result.pairing):
            print_paragraph(terminal, reason, "dim", indent=INDENT)
    counts = result.counts()
    told = [f"healthy rows {result.control.status}", *(f"{counts[name]} {name}" for name in FAULTS if counts.get(name))]
    terminal.print(" · ".join(told) + f"  (exit {status})", style="bold")


def _print_heading(terminal: Terminal, result: Drill) -> None:
    heading = Text(one_line(result.label), style="bold")
    facts = [f"{result.source_rows:,} rows", f"{result.dimension}-d", f"fingerprint {result.fingerprint[:8]}"]
    terminal.print(heading.append("  " + " · ".join(facts), style="not bold dim"), soft_wrap=True)
    order = "in any order" if result.block == 1 else f"in blocks of {result.block}"
    dealt = f"reference {result.reference_rows:,} rows, window {result.window:,}, dealt {order}"
    for note in (f"{dealt}; level {format_number(result.level)}", *result.notes):
        print_paragraph(terminal, note, "dim", indent=2)


def _how(trial: Trial, window: int) -> str:
    """Return which checks fired after how many rows, and in how many repeats."""
    repeats = len(trial.outcomes)
    checks = list(trial.checks())
    if not checks:
        return f"in {window:,} rows" if trial.status in ("ok", "noticed", "missed", "unknown") else ""
    told = " · ".join(f"{check} after {trial.rows_of(check):,} rows" for check in checks)
    return told if repeats == 1 else f"{told}  ({trial.hits} of {repeats})"


def _why(trial: Trial, pairing: tuple[str, ...]) -> list[str]:
    """Return what a reader must know of a line: what it was called, or why it was not found."""
    if trial.status == "ok":
        return []
    if trial.status == "found":
        told = [f"named: {name}" for name in list(trial.names())[:1]]
        if trial.noticed_by() and not trial.checks().keys() - set(pairing):
            names = " and ".join(trial.noticed_by())
            told.append(f"without a canary: noticed by {names}, and called harmless or small")
        return told
    found = [trial.reason()]
    if trial.status in ("missed", "blind"):
        found.append(trial.unseen)
    return [reason for reason in found if reason]
