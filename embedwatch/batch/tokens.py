"""TokenBatch: rows of an embedding table, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from embedwatch.batch.rows import Rows, check_column, check_numbers

__all__ = ["TokenBatch"]


@dataclass(eq=False)
class TokenBatch(Rows):
    """What is known of the rows of an embedding table at one time, token by token; no row twice.

    Args:
        ids: (N,) int64 token ids.
        norms: (N,) Euclidean norm of each row now.
        counts: (N,) int64 how often each token was seen since watching began.
        drift: (N,) distance from the row as it was when watching began, over its norm then; NaN where it is not known.
        update: (N,) distance that the row moved in one step, over its norm before; NaN where it is not known.
    """

    kind: ClassVar[str] = "tokens"

    ids: Tensor
    norms: Tensor
    counts: Tensor
    drift: Tensor
    update: Tensor

    def __post_init__(self) -> None:
        for name in ("ids", "counts"):
            check_column(name, getattr(self, name), len(self.norms))
        for name in ("norms", "drift", "update"):
            check_numbers(name, getattr(self, name), len(self.ids))
