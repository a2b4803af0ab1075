"""Options that several commands share: the same name everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["color_option", "debug_option", "fail_on_option", "json_option", "quiet_option"]

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only what is not ok, and no progress.")
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the output; auto does so on a terminal only, and not where NO_COLOR is set.",
)
fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["warn", "fail", "never"]),
    default="fail",
    show_default=True,
    help="Exit with 1 if a verdict is this grave or graver.",
)
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
