"""Means: the mean of each of some numbers that come one by one."""

from __future__ import annotations

from collections.abc import Iterable

from embedwatch.sketches.additive import Additive

__all__ = ["Means"]

COUNT = "_count"


class Means(Additive):
    """Sums and counts of named numbers. Merge is exact to rounding.

    Args:
        names: of the numbers.

    Example:
        >>> means = Means(["height", "width"])
        >>> for number in (1.0, 4.0):
        ...     means.note("height", number)
        >>> means.mean("height"), means.mean("width")
        (2.5, None)
    """

    def __init__(self, names: Iterable[str]) -> None:
        held = list(names)
        super().__init__(sums=dict.fromkeys(held, ()), counts=dict.fromkeys([name + COUNT for name in held], ()))

    def note(self, name: str, number: float) -> None:
        """Add a finite number."""
        self.add(name, number)
        self.add(name + COUNT, 1)

    def mean(self, name: str) -> float | None:
        """Return the mean of what was noted; `None` where nothing was."""
        count = int(self[name + COUNT])
        return float(self[name]) / count if count else None
