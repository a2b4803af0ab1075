"""How much still fits into a page."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass
class Budget:
    """Bytes that are left.

    Example:
        >>> budget = Budget(100)
        >>> budget.take(80), budget.take(30), budget.take(20), budget.left
        (True, False, True, 0)
    """

    left: int

    def take(self, size: int) -> bool:
        """Take so many bytes if there are that many, and say whether."""
        if size > self.left:
            return False
        self.left -= size
        return True
