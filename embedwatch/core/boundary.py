"""Boundary: where an exception of ours ends. The model that is being watched never stops because of us."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from embedwatch.core.errors import UsageError

__all__ = ["Boundary", "OnError"]

log = logging.getLogger(__name__)
OnError = Literal["count", "raise"]


class Boundary:
    """Counts exceptions by stage and name, logs each once, and switches off what keeps failing.

    The log has the traceback, but for a `UsageError`: its one line says what to do.

    Args:
        on_error: `count` swallows, `raise` lets the exception through after counting (tests, debugging).
        patience: number of exceptions in a row after which an item counts as off.

    Example:
        >>> boundary = Boundary(patience=1)
        >>> with boundary.guard("statistic", "norms"):
        ...     1 / 0
        >>> boundary.errors
        {('statistic', 'norms'): 1}
        >>> boundary.is_off("statistic", "norms")
        True
    """

    def __init__(self, *, on_error: OnError = "count", patience: int = 5) -> None:
        if on_error not in ("count", "raise"):
            raise UsageError(f"`on_error` must be count or raise, got {on_error!r}; count is usual")
        self.on_error = on_error
        self.patience = patience
        self._errors: Counter[tuple[str, str]] = Counter()
        self._streak: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    @property
    def errors(self) -> dict[tuple[str, str], int]:
        """Number of exceptions by (stage, name)."""
        with self._lock:
            return dict(self._errors)

    def is_off(self, stage: str, name: str) -> bool:
        """Return whether this item failed so often in a row that it should not be tried again."""
        return self._streak[stage, name] >= self.patience

    @property
    def off(self) -> list[tuple[str, str]]:
        """What counts as off, by (stage, name)."""
        with self._lock:
            return [key for key, streak in self._streak.items() if streak >= self.patience]

    def recover(self, stage: str, name: str) -> None:
        """Forget the failures in a row of an item that did its whole work again."""
        with self._lock:
            self._streak.pop((stage, name), None)

    @contextmanager
    def guard(self, stage: str, name: str, *, recovers: bool = False) -> Iterator[None]:
        """Run a block; count and log what it raises.

        Args:
            stage: where it happened.
            name: what failed there.
            recovers: whether one success makes up for the failures in a row.
        """
        try:
            yield
            if recovers and self._streak:
                self.recover(stage, name)
        except Exception as error:
            with self._lock:
                self._errors[stage, name] += 1
                self._streak[stage, name] += 1
                count, streak = self._errors[stage, name], self._streak[stage, name]
            if self.on_error == "raise":
                raise
            if count == 1 and isinstance(error, UsageError):  # one line says it all
                log.error("embedwatch: %s %r: %s", stage, name, error)
            elif count == 1:
                log.exception("embedwatch: %s %r failed; it counts as unknown", stage, name)
            if streak == self.patience:
                log.error("embedwatch: %s %r failed %d times in a row", stage, name, streak)
