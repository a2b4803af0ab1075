"""Texts that fit in one line of a message, and the refusals that several formats share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from embedwatch.core.errors import InputError, UsageError, did_you_mean

__all__ = [
    "MAX_DIMENSION",
    "check_shape",
    "choose",
    "clean",
    "count_of",
    "ends_early",
    "first_line",
    "is_shape",
    "label_of",
    "listed",
    "shown",
]

MAX_DIMENSION = 1 << 20
"""More dimensions than this are a transposed matrix or a lying header, not an embedding."""
MAX_AXES, MAX_AXIS = 64, 1 << 62
"""Products of such axes still fit in a message: Python refuses to print numbers of over 4,300 digits."""
LISTED = 8
"""How many choices a message names before it counts the rest."""
LINE_LENGTH = 160

ValueT = TypeVar("ValueT")


def clean(text: str, limit: int = LINE_LENGTH) -> str:
    """Return a text that fits in one line of a message: no control characters, no lone surrogates, not too long."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = "".join(char if char.isprintable() else "?" for char in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shown(value: object, limit: int = 40) -> str:
    """Return a value from a file as it may stand in a message."""
    return clean(repr(value), limit)


def first_line(error: BaseException) -> str:
    """Return the first line of another library's complaint, without its full stop."""
    lines = str(error).strip().splitlines()
    return clean(lines[0]).rstrip(".") if lines else type(error).__name__


def label_of(path: Path) -> str:
    """Return the file's name, as people read it."""
    return clean(os.fsencode(path.name or os.fspath(path)).decode("utf-8", "replace"))


def count_of(number: int, noun: str) -> str:
    """Return "1 row" or "2 rows".

    Example:
        >>> count_of(1200, "row")
        '1,200 rows'
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    names = [clean(name, 60) for name in names]
    rest = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def ends_early(label: str, size: int, promised: int, what: str, *, where: str = "header") -> InputError:
    """Return the error for a file that is shorter than it says."""
    return InputError(f"{label} ends after {size:,} bytes, its {where} promises {promised:,} ({what}); copy it again")


def is_shape(axes: object) -> bool:
    """Return whether these are the lengths of axes that an array can have: their product still fits in a message."""
    return (
        isinstance(axes, (tuple, list))
        and len(axes) <= MAX_AXES
        and all(type(axis) is int and 0 <= axis <= MAX_AXIS for axis in axes)
    )


def check_shape(label: str, shape: tuple[int, ...], *, fix: str = "reshape it before saving") -> tuple[int, int]:
    """Return (N, D) of an array that holds vectors.

    Raises:
        InputError: for any other number of axes, and for no or absurdly many dimensions.
    """
    if len(shape) != 2:
        axes = "flatten batch and position first" if len(shape) > 2 else fix
        raise InputError(f"{label} is {len(shape)}-D with shape {shown(shape)}, vectors must be 2-D (N, D); {axes}")
    rows, dimension = shape
    if dimension == 0:
        raise InputError(f"{label} has shape {shown(shape)}, vectors must have at least one dimension; write it again")
    if dimension > MAX_DIMENSION:
        raise InputError(
            f"{label} has {dimension:,} dimensions, at most {MAX_DIMENSION:,} can be read; is it transposed or damaged?"
        )
    return rows, dimension


def choose(label: str, noun: str, choices: Mapping[str, ValueT], select: str | None) -> tuple[str, ValueT]:
    """Return the chosen one of several arrays, tensors or columns; the only one where there is no choice.

    Raises:
        UsageError: if `select` is missing where it is needed, or names none of them.
    """
    if select is None:
        if len(choices) == 1:
            return next(iter(choices.items()))
        raise UsageError(
            f"{label} holds {count_of(len(choices), noun)} that could be the vectors ({listed(list(choices))}); "
            f"choose one with `--select {noun.upper()}`"
        )
    if select not in choices:
        hint = did_you_mean(select, choices)
        raise UsageError(f"{label} has no {noun} {shown(select)}; {hint or f'it has {listed(list(choices))}'}")
    return select, choices[select]
