"""RowSample: a uniform sample of rows that merges exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.sketches.smallest import SmallestKeys

__all__ = ["RowSample"]

NO_LABEL = 0


class RowSample(SmallestKeys):
    """The `capacity` rows with the smallest hash of their identity, as unit rows in float32, with row number and group.

    Rows that have no number are sampled by their content, so that equal rows count once.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(
            capacity,
            {
                "unit": (("D",), torch.float32, "first"),
                "content": ((), torch.int64, "first"),
                "id": ((), torch.int64, "first"),
                "group": ((), torch.int64, "first"),
            },
            ties=("content", "group", "id"),
        )

    def offer(self, batch: VectorBatch, *, groups: Tensor | None = None) -> None:
        """Offer the rows of a batch that have a direction, with a hash of each row's group."""
        rows = batch.directed
        if not len(rows):
            return
        label = torch.full_like(rows.keys, NO_LABEL) if groups is None else groups
        self.add(rows.keys, unit=batch.unit, content=rows.content, id=rows.numbers, group=label)

    def distinct(self) -> Tensor:
        """Return the places of sampled rows whose content is the first of its kind, in sample order. Shape: (m,)."""
        content = self.values("content")
        _, inverse = torch.unique(content, return_inverse=True)
        places = torch.arange(len(content), device=content.device)
        first = torch.full_like(places, len(content)).scatter_reduce_(0, inverse, places, reduce="amin")
        return torch.sort(first[first < len(content)]).values
