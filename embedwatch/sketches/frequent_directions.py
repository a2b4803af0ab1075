"""FrequentDirections: the leading part of a second-moment matrix too large to keep."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.sketches.base import Sketch

__all__ = ["FrequentDirections"]


class FrequentDirections(Sketch):
    """A matrix B of ℓ rows with `0 ⪯ AᵀA - BᵀB ⪯ ‖A - A_k‖_F² / (ℓ - k)` for every k < ℓ, where A are all rows seen.

    Rows fill a buffer of 2ℓ; when it is full, its singular values are shrunk by the (ℓ+1)-th, which frees ℓ rows.
    Merge stacks two sketches and shrinks, and keeps the bound (Ghashami, Liberty, Phillips & Woodruff 2016,
    "Frequent Directions: simple and deterministic matrix sketching", SIAM J. Comput. 45(5), theorems 1.1 and section 3).
    The bound holds in any order of rows, but the matrix itself depends on it.

    Args:
        size: ℓ.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._buffer: Tensor | None = None  # (2ℓ, D)
        self._filled = 0

    def add(self, rows: Tensor) -> None:
        """Add rows (N, D)."""
        rows = rows.double()
        if self._buffer is None:
            self._buffer = rows.new_zeros(2 * self.size, rows.shape[1])
        position = 0
        while position < len(rows):
            if self._filled == len(self._buffer):
                self._shrink()
            taken = min(len(rows) - position, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + taken] = rows[position : position + taken]
            self._filled += taken
            position += taken

    def _shrink(self) -> None:
        """Bring the buffer down to at most ℓ rows."""
        assert self._buffer is not None  # only called with a filled buffer
        _, values, directions = torch.linalg.svd(self._buffer[: self._filled], full_matrices=False)
        cut = values[self.size] ** 2 if len(values) > self.size else values.new_zeros(())
        shrunk = (values**2 - cut).clamp(min=0).sqrt()[: self.size]
        self._buffer.zero_()
        self._buffer[: len(shrunk)] = shrunk[:, None] * directions[: self.size]
        self._filled = len(shrunk)

    def matrix(self) -> Tensor | None:
        """Return B, at most (2ℓ, D), or `None` when empty."""
        return None if self._buffer is None else self._buffer[: self._filled]

    def merge(self, other: FrequentDirections) -> None:
        """Add what the other saw."""
        rows = other.matrix()
        if rows is not None:
            self.add(rows if self._buffer is None else rows.to(self._buffer.device))

    def state(self) -> dict[str, Tensor]:
        """Return its tensors."""
        matrix = self.matrix()
        return {} if matrix is None else {"matrix": matrix}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` gave."""
        self._buffer, self._filled = None, 0
        if "matrix" in state:
            self.add(state["matrix"])

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        return 16 * self.size * dimension
