"""Sinks: one file each."""

from __future__ import annotations

from collections.abc import Iterable

from embedwatch.core.registry import get
from embedwatch.core.sink import Sink

__all__ = ["open_sink", "open_sinks"]


def open_sink(text: str) -> Sink:
    """Open a sink by what stands after `--sink`: `NAME`, or `NAME:TARGET`.

    Raises:
        UsageError: if there is none of that name, or the target does not fit.

    Example:
        >>> open_sink("memory").name
        'memory'
    """
    name, _, target = text.partition(":")
    return get(Sink, name).open(target)


def open_sinks(given: Iterable[Sink | str]) -> list[tuple[Sink, bool]]:
    """Open those that are texts; say of each whether it was opened here, and so has to be closed."""
    return [(open_sink(sink), True) if isinstance(sink, str) else (sink, False) for sink in given]
