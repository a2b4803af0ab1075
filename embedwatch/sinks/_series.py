"""Series: the values of one family in one Space, by their labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from embedwatch.core.errors import UsageError
from embedwatch.core.measurement import Histogram, Number
from embedwatch.exposition import Family

__all__ = ["Labels", "Series", "Value"]

Labels = tuple[tuple[str, str], ...]
Value = Number | Histogram


@dataclass(slots=True)
class Series:
    """The values of one family by their labels.

    Example:
        >>> rows = Series(Family("embedwatch_rows_total", "Rows seen.", "counter"))
        >>> rows.add((), 3)
        >>> rows.add((), 4)
        >>> rows.values
        {(): 7}
    """

    family: Family
    values: dict[Labels, Value] = field(default_factory=dict)

    def put(self, labels: Labels, value: Value) -> None:
        """Take a value; where folding made two series one, the first stays."""
        self.values.setdefault(labels, self._checked(value))

    def renew(self, labels: Labels, value: Value) -> None:
        """Take a value in the place of an earlier one."""
        self.values[labels] = self._checked(value)

    def begin(self, labels: Labels, value: Value) -> None:
        """Begin at zero, with the bounds of the given value; what has begun goes on."""
        checked = self._checked(value)
        zero = Histogram(checked.bounds, (0,) * len(checked.counts), 0.0, 0) if isinstance(checked, Histogram) else 0
        self.values.setdefault(labels, zero)

    def add(self, labels: Labels, value: Value) -> None:
        """Add what one window counted; a histogram with other bounds than before starts anew."""
        value, before = self._checked(value), self.values.get(labels, 0)
        if not isinstance(value, Histogram):
            self.values[labels] = value if isinstance(before, Histogram) else before + value
        elif isinstance(before, Histogram) and before.bounds == value.bounds:
            counts = tuple(old + new for old, new in zip(before.counts, value.counts, strict=True))
            self.values[labels] = Histogram(value.bounds, counts, before.sum + value.sum, before.n + value.n)
        else:
            self.values[labels] = value

    def _checked(self, value: Value) -> Value:
        """Return the value.

        Raises:
            UsageError: if the family cannot hold it.
        """
        kind = self.family.kind
        if isinstance(value, Histogram):
            fits = kind == "histogram" and math.isfinite(value.sum) and all(map(math.isfinite, value.bounds))
        else:
            fits = math.isfinite(value) and (kind == "gauge" or (kind == "counter" and value >= 0))
        if not fits:
            raise UsageError(
                f"a value of {self.family.name} must fit a {kind}, got {value!r}; counters take numbers from 0 up, "
                "histograms take finite bounds and a finite sum"
            )
        return value
