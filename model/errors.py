"""What this package raises on misuse, and the checks that several modules share.

Every message reads: `argument` must be REQUIREMENT, got VALUE; FIX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

__all__ = ["ModelError", "check_at_least", "check_number", "check_one_of"]


class ModelError(ValueError):
    """An argument, a configuration or an input that the model cannot work with."""


def check_at_least(minimum: int, **values: int | None) -> None:
    """Raise unless every given number is an integer of at least `minimum`; None passes.

    Example:
        >>> check_at_least(1, layers=2, window=None)
        >>> check_at_least(1, layers=0)
        Traceback (most recent call last):
        ...
        embedwatch_model.errors.ModelError: `layers` must be at least 1, got 0; give a whole number of at least 1
    """
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            fix = f"give a whole number of at least {minimum}"
            raise ModelError(f"`{name}` must be at least {minimum}, got {value!r}; {fix}")


def check_number(name: str, value: object, *, least: float, below: float = math.inf, usual: float) -> None:
    """Raise unless the value is a finite number of at least `least` and below `below`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not least <= cast(float, value) < below:
        raise ModelError(f"`{name}` must be a number in [{least:g}, {below:g}), got {value!r}; {usual:g} is usual")


def check_one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        names = ", ".join(f'"{one}"' for one in allowed)
        raise ModelError(f"`{name}` must be one of {names}, got {value!r}; choose one of them")
