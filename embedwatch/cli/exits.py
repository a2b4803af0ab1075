"""Exit statuses of commands that judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized

import click

__all__ = ["EXIT_INTERNAL", "EXIT_JUDGED", "EXIT_OK", "compared_status", "is_grave", "judged_any", "tell_errors"]

EXIT_OK, EXIT_JUDGED, EXIT_INTERNAL = 0, 1, 2


def is_grave(counts: Mapping[str, int], fail_on: str) -> bool:
    """Return whether a verdict is as grave as was asked for, or graver.

    Example:
        >>> is_grave({"fail": 0, "warn": 1}, "warn"), is_grave({"fail": 0, "warn": 1}, "fail")
        (True, False)
    """
    return fail_on != "never" and bool(counts["fail"] or (fail_on == "warn" and counts["warn"]))


def judged_any(counts: Mapping[str, int]) -> bool:
    """Return whether anything could be judged."""
    return bool(counts["fail"] + counts["warn"] + counts["ok"])


def compared_status(counts: Mapping[str, int], verdicts: Sized, errors: Sized, fail_on: str) -> int:
    """Return 1 if a verdict is grave enough or something could not be judged, else 2 if something of ours failed."""
    if counts["unknown"] or not verdicts or is_grave(counts, fail_on):
        return EXIT_JUDGED
    return EXIT_INTERNAL if errors else EXIT_OK


def tell_errors(errors: Iterable[tuple[str, str, int]]) -> None:
    """Say on standard error what of ours failed."""
    for stage, name, count in errors:
        click.echo(f"embedwatch: {stage} {name!r} failed, {count} in all; what it would say is missing", err=True)
