"""Messages of libraries speak of arguments; a person at a terminal knows options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from embedwatch.core.errors import EmbedwatchError

__all__ = ["in_options"]

ARGUMENT = re.compile(r"^`(?:\w+\.)*(\w+)`")
"""What a message is about: it begins with the argument, that of a part behind a dot."""


@contextmanager
def in_options(command: click.Command, **others: str) -> Iterator[None]:
    """Let errors of ours name the option that was wrong: `since` becomes `--since`.

    Args:
        command: whose options they are.
        others: arguments that are called otherwise than their option, each with the name that the option has as a
            parameter.

    Example:
        >>> from embedwatch.core.errors import UsageError
        >>> command = click.Command("train", params=[click.Option(["--lr"]), click.Option(["--save-every"])])
        >>> with in_options(command, rate="lr"):
        ...     raise UsageError("`training.rate` must be above 0, got -1; 0.001 is usual")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.UsageError: `--lr` must be above 0, got -1; 0.001 is usual
    """
    options = {
        str(option.name): max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)
    }
    options |= {argument: options[name] for argument, name in others.items()}
    try:
        yield
    except EmbedwatchError as error:
        text = str(error)
        told = ARGUMENT.sub(lambda found: f"`{options[found[1]]}`" if found[1] in options else found[0], text)
        if told == text:
            raise
        raise type(error)(told) from error
