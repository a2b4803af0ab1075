"""Recent: numbers of the highest steps, one for each step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError, UsageError
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["Recent"]


class Recent(Sketch):
    """Keeps the numbers of the `capacity` highest steps, whatever the order in which they come. Merge is exact.

    Numbers of one step, as several ranks of one training note them, count as their mean. Whatever is dropped in a part
    lies below `capacity` steps of that part, so it would be dropped from the whole too. Steps that follow one another
    stay neighbours, where thinning by a power of two would hide a course that goes up and down with each step.

    Args:
        capacity: how many steps are kept.

    Example:
        >>> losses = Recent(2)
        >>> for step, number in ((7, 4.0), (9, 1.0), (8, 2.0), (9, 3.0)):
        ...     losses.note(step, number)
        >>> losses.course
        [(8, 2.0), (9, 2.0)]
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise UsageError(f"`capacity` must be at least 1, got {capacity}; name how many steps to keep")
        self.capacity = capacity
        self._held: dict[int, tuple[float, int]] = {}

    def note(self, step: int, number: float) -> None:
        """Offer a finite number."""
        self._offer(step, number, 1)

    def _offer(self, step: int, total: float, count: int) -> None:
        before, times = self._held.get(step, (0.0, 0))
        self._held[step] = before + total, times + count
        if len(self._held) > 2 * self.capacity:  # not at each step: it sorts
            self._held = dict(self._kept)

    @property
    def _kept(self) -> list[tuple[int, tuple[float, int]]]:
        return sorted(self._held.items())[-self.capacity :]

    @property
    def course(self) -> list[tuple[int, float]]:
        """Step and number, in the order of the steps."""
        return [(step, total / count) for step, (total, count) in self._kept]

    def merge(self, other: Recent) -> None:
        """Add what the other kept."""
        for step, (total, count) in other._kept:
            self._offer(step, total, count)

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        kept = self._kept
        if not kept:
            return {}
        return {
            "steps": torch.tensor([step for step, _ in kept]),
            "totals": torch.tensor([total for _, (total, _) in kept], dtype=torch.float64),
            "counts": torch.tensor([count for _, (_, count) in kept]),
        }

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        steps = check_tensor("steps", state["steps"], (None,), torch.int64)
        totals = check_tensor("totals", state["totals"], (len(steps),), torch.float64)
        counts = check_tensor("counts", state["counts"], (len(steps),), torch.int64)
        if not 0 < len(steps) <= self.capacity or bool((steps.diff() <= 0).any()) or int(steps[0]) < 0:
            raise MergeError(f"`steps` must rise, {self.capacity} at most, got {len(steps)}; the state is damaged")
        if int(counts.min()) < 1:
            raise MergeError(f"`counts` must be at least 1, got {int(counts.min())}; the state is damaged")
        pairs = zip(totals.tolist(), counts.tolist(), strict=True)
        self._held = dict(zip(steps.tolist(), pairs, strict=True))

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        del dimension
        return 2 * 24 * self.capacity
