"""The terminals that commands print to."""

from __future__ import annotations

import os

from rich.console import Console as Terminal

__all__ = ["open_terminals"]

PIPE_WIDTH = 100


def open_terminals(color: str) -> tuple[Terminal, Terminal]:
    """Return the terminals of standard output and standard error; a file or pipe is 100 columns wide."""
    force = {"auto": None, "always": True, "never": False}[color]
    output = Terminal(highlight=False, force_terminal=force, no_color=True if color == "never" else None)
    if not output.is_terminal and "COLUMNS" not in os.environ:
        output.width = PIPE_WIDTH
    return output, Terminal(stderr=True, highlight=False)
