"""PairBatch: the same items in two spaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embedwatch.batch.rows import Rows, check_column, check_matrix
from embedwatch.batch.vectors import VectorBatch
from embedwatch.core.errors import UsageError

__all__ = ["PairBatch"]


@dataclass(eq=False)
class PairBatch(Rows):
    """The same items in two spaces: (N, D1) and (N, D2) with the row numbers that pair them."""

    kind: ClassVar[str] = "pairs"

    left: Tensor
    right: Tensor
    ids: Tensor | None = None
    source: str = ""
    segment: str = "all"

    def __post_init__(self) -> None:
        check_matrix("left", self.left)
        check_matrix("right", self.right)
        if len(self.left) != len(self.right):
            raise UsageError(
                f"`left` and `right` must have the same number of rows, got {len(self.left)} and {len(self.right)}; "
                "pair them by id first"
            )
        check_column("ids", self.ids, len(self.left))

    def sides(self) -> tuple[VectorBatch, VectorBatch]:
        """Return both sides as batches of vectors."""
        return (
            VectorBatch(self.left, self.ids, source=self.source, segment=self.segment),
            VectorBatch(self.right, self.ids, source=self.source, segment=self.segment),
        )
