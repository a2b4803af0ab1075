"""Looks: what all that sees anything keeps count of, at whatever place."""

from __future__ import annotations

__all__ = ["Looks"]


class Looks:
    """How looking at one place went since it began, and in the window that is open."""

    looks = 0
    dropped = 0
    """Rows that were seen and could not be kept."""
    calls = 1
    """How often its module is called in a forward pass."""
    silent = 0
    """Windows in a row in which nothing was seen, though the model was looked at."""
    unfit = ""
    """Why what came could not be looked at, where it could not."""
    seconds = 0.0
    _marked = 0

    @property
    def fresh(self) -> bool:
        """Whether anything was seen since the last mark."""
        return self.looks > self._marked

    def mark(self, *, looked: bool) -> None:
        """End a window, in which the model was looked at or not."""
        self.silent = 0 if self.fresh else self.silent + looked
        self._marked = self.looks
