"""`embedwatch completion`: what a shell must know to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from embedwatch.cli.options import debug_option

__all__ = ["completion_command"]

PROGRAM = "embedwatch"
VARIABLE = "_EMBEDWATCH_COMPLETE"
"""With this in its environment the program answers the shell instead of running."""
SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print what a shell needs to complete commands and options.")
@click.argument("shell", type=click.Choice(SHELLS))
@debug_option
@click.pass_context
def completion_command(context: click.Context, *, shell: str) -> None:
    """Print a script that completes commands, options and their choices; the shell reads it when it starts.

    \b
    Examples:
      embedwatch completion bash >> ~/.bash_completion
      embedwatch completion zsh > ~/.zfunc/_embedwatch     with fpath=(~/.zfunc $fpath) before compinit
      embedwatch completion fish > ~/.config/fish/completions/embedwatch.fish
    """
    found = get_completion_class(shell)
    if found is None:  # click knows all three
        raise click.UsageError(f"`SHELL` must be one of {', '.join(SHELLS)}, got {shell}; choose one")
    click.echo(found(context.find_root().command, {}, PROGRAM, VARIABLE).source())
