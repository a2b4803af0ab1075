"""Latest: the number with the highest step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["Latest"]


class Latest(Sketch):
    """Keeps the number of the highest step, whatever the order in which numbers come. Merge is exact.

    Numbers of one step, as several ranks of one training note them, count as their mean.

    Example:
        >>> rate = Latest()
        >>> for step, number in ((7, 0.2), (9, 0.1), (9, 0.3), (8, 0.9)):
        ...     rate.note(step, number)
        >>> rate.number
        0.2
    """

    def __init__(self) -> None:
        self._step, self._total, self._count = 0, 0.0, 0

    def note(self, step: int, number: float) -> None:
        """Offer a finite number."""
        self._offer(step, number, 1)

    def _offer(self, step: int, total: float, count: int) -> None:
        if not self._count or step > self._step:
            self._step, self._total, self._count = step, total, count
        elif step == self._step:
            self._total, self._count = self._total + total, self._count + count

    @property
    def number(self) -> float | None:
        """The mean of what was noted for the highest step; `None` where nothing was."""
        return self._total / self._count if self._count else None

    def merge(self, other: Latest) -> None:
        """Add what the other kept."""
        if other._count:
            self._offer(other._step, other._total, other._count)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        if not self._count:
            return {}
        total = torch.tensor(self._total, dtype=torch.float64)
        return {"step": torch.tensor(self._step), "total": total, "count": torch.tensor(self._count)}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        step, count = (int(check_tensor(name, state[name], (), torch.int64)) for name in ("step", "count"))
        if count < 1:
            raise MergeError(f"`count` must be at least 1, got {count}; the state is damaged")
        self._offer(step, float(check_tensor("total", state["total"], (), torch.float64)), count)

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        del dimension
        return 24
