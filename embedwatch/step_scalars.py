"""Scalars of a step by their names: one that nothing reads is told of, once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from embedwatch.core.errors import did_you_mean
from embedwatch.core.registry import registered
from embedwatch.core.statistic import Statistic
from embedwatch.observe.gradient_parts import OF_PARTS

__all__ = ["ScalarNames"]

log = logging.getLogger(__name__)


class ScalarNames:
    """Knows the scalars that statistics read, those of other packages too, and warns once of each other.

    Example:
        >>> names = ScalarNames("model")
        >>> print(names.unread("lsos"))
        `step` was given 'lsos', which no statistic reads; did you mean "loss"?
        >>> names.unread("loss")
        ''
    """

    def __init__(self, model: str) -> None:
        self._model = model
        readers = [each for each in registered(Statistic).values() if each.consumes == "steps"]
        self._known = {name for each in readers for name in each.scalars}
        self._open = any(not each.scalars for each in readers)  # it does not say what it reads
        self._told: set[str] = set()

    def check(self, names: Iterable[str]) -> None:
        """Warn of the names that nothing reads, each once."""
        for name in names:
            if name not in self._known and name not in self._told:
                self._told.add(name)
                if words := self.unread(name):
                    log.warning("embedwatch: %s: %s", self._model, words)

    def unread(self, name: str) -> str:
        """Return a sentence about a name that nothing reads; empty where something does, or may."""
        if self._open or name.removesuffix(OF_PARTS) in self._known:
            return ""
        hint = did_you_mean(name, self._known) or f"there are {', '.join(sorted(self._known))}"
        return f"`step` was given {name!r}, which no statistic reads; {hint}"
