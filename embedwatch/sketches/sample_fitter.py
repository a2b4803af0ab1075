"""SampleFitter: fits a map on a uniform sample of the rows of the first half of a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.sketches.smallest import SmallestKeys

__all__ = ["SampleFitter"]

Make = Callable[[Tensor, Tensor], Mapping[str, Tensor]]


class SampleFitter:
    """Keeps the rows with the smallest hash of their identity, in float32, and makes arrays of them at the end.

    Args:
        capacity: rows that are kept.
        make: takes rows (m, D) and their numbers (m,) and returns the arrays of a map.

    Example:
        >>> fitter = SampleFitter(100, lambda rows, numbers: {"mean": rows.mean(0)})
        >>> fitter.update(VectorBatch(torch.ones(5, 3)))
        >>> fitter.frozen()["mean"].tolist()
        [1.0, 1.0, 1.0]
    """

    def __init__(self, capacity: int, make: Make) -> None:
        self._make = make
        self._sample = SmallestKeys(
            capacity, {"number": ((), torch.int64, "first"), "rows": (("D",), torch.float32, "first")}
        )

    def update(self, batch: VectorBatch) -> None:
        """Add rows; those that are not finite are left out."""
        clean = batch.clean
        if len(clean):
            self._sample.add(clean.keys, number=clean.numbers, rows=clean.rows)

    def frozen(self) -> Mapping[str, Tensor]:
        """Return the arrays of the map.

        Raises:
            UsageError: if there were no finite rows.
        """
        rows = self._sample.values("rows")
        if not len(rows):
            raise UsageError("`batches` must hold finite rows to fit on, got none; give rows without NaN and Inf")
        return self._make(rows.cpu().double(), self._sample.values("number").cpu())
