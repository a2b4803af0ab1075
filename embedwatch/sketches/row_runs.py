"""RowRuns: a sample of a stream in runs of consecutive rows, which merges exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.hashing import hash_integers
from embedwatch.sketches.smallest import SmallestKeys

__all__ = ["RUN", "SAMPLE_ROWS", "RowRuns"]

RUN = 120
"""Row numbers of a run: blocks of 10, 20, 30, 40, 60 and 120 fit into it."""
SAMPLE_ROWS = 1_200
"""Rows whose neighbourhoods are scanned: of those that fitted, of those that calibrate, and of a window."""
PLACES = 128
"""A power of two, no less than a run: the lowest bits of a key tell the place in its run."""


class RowRuns(SmallestKeys):
    """The runs of `RUN` consecutive row numbers with the smallest hash, up to a number of rows.

    Rows that were chosen one by one would lose what neighbours have in common: beside a window that was kept whole, a
    sparse sample of a stream that keeps to its topics looks independent. All rows of a run are kept, but for the last
    run that fits. Two samples of the same rows keep the same.

    Args:
        rows: type in which the rows themselves are kept; `None` keeps their number and content alone.
        capacity: rows that are kept, at most.

    Example:
        >>> import torch
        >>> runs = RowRuns(capacity=240)
        >>> numbers = torch.arange(12_000)
        >>> runs.add(runs.keys_of(numbers), number=numbers, content=numbers)
        >>> (runs.values("number") // RUN).unique().tolist()
        [15, 17]
    """

    def __init__(self, rows: torch.dtype | None = None, *, capacity: int = SAMPLE_ROWS) -> None:
        if rows is None:
            super().__init__(capacity, {"number": ((), torch.int64, "first"), "content": ((), torch.int64, "first")})
        else:
            super().__init__(capacity, {"rows": (("D",), rows, "first")})

    @staticmethod
    def keys_of(numbers: Tensor) -> Tensor:
        """Return the keys of rows: those of a run lie together. Shape: (N,) int64 -> (N,) int64."""
        runs = torch.div(numbers, RUN, rounding_mode="floor")
        return (hash_integers(runs) & ~(PLACES - 1)) | (numbers - RUN * runs)

    def wanted(self, keys: Tensor) -> Tensor:
        """Return the places of keys that may be kept. Shape: (N,) -> (m,)."""
        places = torch.arange(len(keys), device=keys.device)
        return places[keys <= self.keys[-1].to(keys.device)] if self.full else places
