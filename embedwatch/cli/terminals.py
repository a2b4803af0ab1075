"""The terminals that commands print to."""

from __future__ import annotations

import os
from contextlib import suppress

from rich.console import Console as Terminal

__all__ = ["EXIT_CLOSED", "open_terminals"]

PIPE_WIDTH = 100
EXIT_CLOSED = 141
"""Whoever read the output went away before it was whole, as `head` does: what a shell says of any program then."""


class _Terminal(Terminal):
    """One that nobody reads any more ends the command; 1, which is rich's own way, is what a failed check ends with."""

    def on_broken_pipe(self) -> None:
        """End the command, and let what is still to be written go nowhere."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(EXIT_CLOSED)


def open_terminals(color: str) -> tuple[Terminal, Terminal]:
    """Return the terminals of standard output and standard error; a file or pipe is 100 columns wide."""
    force = {"auto": None, "always": True, "never": False}[color]
    output = _Terminal(highlight=False, force_terminal=force, no_color=True if color == "never" else None)
    if not output.is_terminal and "COLUMNS" not in os.environ:
        output.width = PIPE_WIDTH
    return output, _Terminal(stderr=True, highlight=False)
