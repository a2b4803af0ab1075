"""CrossSums: moments of paired unit rows, within each side and across both."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.geometry.alignment import PairMoments
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["CrossSums"]


class CrossSums(Sketch):
    """`PairMoments` of all rows (x, y) that came: those of each side, and `Σ (x - x̄)(y - ȳ)ᵀ`.

    Memory does not grow with the rows.
    """

    def __init__(self) -> None:
        self.moments: PairMoments | None = None
        """Of all that was added; `None` where nothing was."""
        self._widths = (0, 0)

    def add(self, left: Tensor, right: Tensor) -> None:
        """Add pairs. Shape: (N, D1), (N, D2) float64.

        Raises:
            MergeError: if either side has another dimension than before.
        """
        self._check((left.shape[1], right.shape[1]))
        if len(left):
            found = PairMoments.of(left, right)
            self._combine(PairMoments(found.number, *(each.cpu() for each in found[1:])))

    def _combine(self, moments: PairMoments) -> None:
        self.moments = moments if self.moments is None else self.moments.merged(moments)

    def _check(self, widths: tuple[int, int]) -> None:
        if self._widths == (0, 0):
            self._widths = widths
        for side, before, now in zip(("left", "right"), self._widths, widths, strict=True):
            if before != now:
                raise MergeError(
                    f"{side} rows must have {before} dimensions like those before, got {now}; "
                    "use one Statistic for each pair of spaces"
                )

    def merge(self, other: CrossSums) -> None:
        """Add what the other saw."""
        if other._widths != (0, 0):
            self._check(other._widths)
        if other.moments is not None:
            self._combine(other.moments)

    def state(self) -> dict[str, Tensor]:
        """Return the dimensions of both sides, and the moments."""
        if self._widths == (0, 0):
            return {}
        widths = {"widths": torch.tensor(self._widths)}
        if self.moments is None:
            return widths
        arrays = dict(zip(PairMoments._fields[1:], self.moments[1:], strict=True))
        return {**widths, "number": torch.tensor(self.moments.number), **arrays}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension  # each side has its own
        if not state:
            return
        first, second = check_tensor("widths", state["widths"], (2,), torch.int64).tolist()
        if min(first, second) < 1:
            raise MergeError(f"`widths` must be at least 1, got {first} and {second}; the state is damaged")
        self._check((first, second))
        if len(state) == 1:
            return
        number = int(check_tensor("number", state["number"], (), torch.int64))
        if number < 1:
            raise MergeError(f"`number` must be at least 1, got {number}; the state is damaged")
        shapes = ((first,), (second,), (first, first), (first, second), (second, second))
        arrays = [
            check_tensor(name, state[name], shape, torch.float64)
            for name, shape in zip(PairMoments._fields[1:], shapes, strict=True)
        ]
        self._combine(PairMoments(number, *arrays))

    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes, `dimension` that of the wider side."""
        return 8 * (3 + 2 * dimension + 3 * dimension * dimension)
