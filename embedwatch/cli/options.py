"""Options that several commands share: the same name everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from embedwatch.core.errors import UsageError

__all__ = [
    "POOLINGS",
    "color_option",
    "debug_option",
    "fail_on_option",
    "fails_from",
    "json_option",
    "model_option",
    "quiet_option",
    "reading_options",
    "seed_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

LARGEST_SEED = (1 << 31) - 1
POOLINGS = ("mean", "cls", "last", "max")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only what is not ok, and no progress.")
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour the output; auto does so on a terminal only, and not where NO_COLOR is set.",
)
debug_option = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
model_option = click.option(
    "--model", metavar="MODEL", help="The inputs are files of texts, one a line: encode them with this model."
)


def fails_from(
    default: str | None, told: str = "Exit with 1 if a verdict is this grave or graver."
) -> Callable[[Command], Command]:
    """Return the option `--fail-on` with this default."""
    grades = click.Choice(["warn", "fail", "never"])
    return click.option("--fail-on", type=grades, default=default, show_default=default is not None, help=told)


fail_on_option = fails_from("fail")


def _check_seed(context: click.Context, option: click.Parameter, value: int) -> int:
    """Return a seed; refuse one that some generator of random numbers does not take."""
    del context, option
    if not 0 <= value <= LARGEST_SEED:
        raise UsageError(f"`--seed` must be from 0 to {LARGEST_SEED:,}, got {value}; 0 is usual")
    return value


def seed_option(told: str) -> Callable[[Command], Command]:
    """Return the option `--seed`, 0 by default."""
    return click.option("--seed", type=int, default=0, show_default=True, callback=_check_seed, help=told)


_READING = (
    click.option(
        "--pooling", type=click.Choice(POOLINGS), help="How token vectors become one; by default as the model says."
    ),
    click.option(
        "--prefix", metavar="TEXT", help='Put before each text, like "query: "; by default as the model says.'
    ),
    click.option("--as", "kind", metavar="KIND", help="Read the inputs as this kind; see `embedwatch list sources`."),
    click.option("--select", metavar="NAME", help="Array, tensor or column to read where a file holds several."),
)


def reading_options(command: Command) -> Command:
    """Add the options that say how inputs become rows."""
    for option in reversed(_READING):
        command = option(command)
    return command
