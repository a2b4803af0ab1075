"""`embedwatch align`: the same items in two spaces: may they meet, and if not, what makes them?"""

from __future__ import annotations

import importlib

import click

__all__ = ["align_command"]

COMMANDS = ("check", "fit", "apply", "index", "plan", "mixed")
"""Each is `NAME_command` in the module of its name, imported when it is asked for."""


class _Commands(click.Group):
    """Commands that are imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which people need them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name; `None` where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), f"{cmd_name}_command")
        return command


@click.group("align", cls=_Commands, short_help="Two spaces: may they meet, and what makes them?")
def align_command() -> None:
    """Say whether vectors of two models may meet, fit a map from one space into the other, and use it.

    A map is a bridge while you embed again, with a loss that is measured; it is no upgrade.

    \b
    Examples:
      embedwatch align check old.npy new.npy
      embedwatch align fit new.npy old.npy -o bridge
      embedwatch align apply bridge queries.npy -o mapped.npy
    """
