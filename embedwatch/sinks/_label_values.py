"""Label values, bounded in number: what exceeds the bound becomes `other`."""

from __future__ import annotations

from collections import Counter

__all__ = ["OTHER", "LabelValues"]

OTHER = "other"


class LabelValues:
    """Knows the values of each label, and folds those that come too late into `other`.

    A value that was let in stays let in, so that a series keeps its labels for its life.

    Args:
        limit: so many distinct values of one label are let in.

    Example:
        >>> values = LabelValues(2)
        >>> [values.fold("place", place) for place in ("a", "b", "c", "a")]
        ['a', 'b', 'other', 'a']
        >>> values.overflow
        {'place': 1}
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[str, set[str]] = {}
        self._folded: Counter[str] = Counter()

    @property
    def overflow(self) -> dict[str, int]:
        """Label to how often one of its values was folded; 0 for each label that never was."""
        return {name: self._folded[name] for name in self._known}

    def fold(self, name: str, value: str) -> str:
        """Return the value, or `other`; what UTF-8 cannot say is written as an escape."""
        text = str(value).encode("utf-8", "backslashreplace").decode("utf-8")
        known = self._known.setdefault(name, set())
        if text not in known:
            if len(known) >= self._limit:
                self._folded[name] += 1
                return OTHER
            known.add(text)
        return text
