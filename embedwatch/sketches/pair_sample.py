"""PairSample: a uniform sample of pairs of rows that merges exactly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.batch import PairBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.exhibit import NO_ID
from embedwatch.hashing import combine, hash_integers, hash_rows, hash_text
from embedwatch.sketches.base import Sketch
from embedwatch.sketches.smallest import SmallestKeys

__all__ = ["PairSample", "pair_keys"]

NUMBERS = 16
"""Bytes of row number and content."""


def pair_keys(batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Return the identity of each pair, its source and row number or else its content, and its content. (N,), (N,)."""
    content = hash_integers(hash_rows(batch.left.float()), seed=1) ^ hash_rows(batch.right.float())
    return (content if batch.ids is None else combine(batch.ids, hash_text(batch.source))), content


class PairSample(Sketch):
    """The `capacity` pairs with the smallest hash of their identity, as they are, NaN and Inf among them.

    Rows are kept in float32, bit for bit. Pairs that have no number are sampled by their content, so that equal pairs
    count once; of two pairs with one number the same one is kept in any order.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._kept: SmallestKeys | None = None
        self._widths = (0, 0)

    def offer(self, batch: PairBatch) -> None:
        """Offer the pairs of a batch.

        Raises:
            MergeError: if either side has another dimension than before.
        """
        keys, content = pair_keys(batch)
        numbers = torch.full_like(keys, NO_ID) if batch.ids is None else batch.ids
        kept = self._fitting((batch.left.shape[1], batch.right.shape[1]))
        kept.add(keys, left=_bits(batch.left), right=_bits(batch.right), content=content, id=numbers)

    @property
    def holds_rows(self) -> bool:
        """Whether rows themselves lie in it, which somebody may have to leave out."""
        return True

    def _fitting(self, widths: tuple[int, int]) -> SmallestKeys:
        """Return the sketch of pairs of these dimensions."""
        if self._kept is None:
            self._kept, self._widths = _empty(self.capacity, widths), widths
        for side, before, now in zip(("left", "right"), self._widths, widths, strict=True):
            if before != now:
                raise MergeError(
                    f"{side} rows must have {before} dimensions like those before, got {now}; "
                    "use one Statistic for each pair of spaces"
                )
        return self._kept

    @property
    def keys(self) -> Tensor:
        """The kept keys, ascending. Shape: (k,)."""
        return torch.zeros(0, dtype=torch.int64) if self._kept is None else self._kept.keys

    @property
    def numbers(self) -> Tensor:
        """Row numbers in the order of the keys. Shape: (k,)."""
        return torch.zeros(0, dtype=torch.int64) if self._kept is None else self._kept.values("id")

    @property
    def sides(self) -> tuple[Tensor, Tensor]:
        """Both sides in the order of the keys. Shape: (k, D1), (k, D2) float32."""
        if self._kept is None:
            return torch.zeros(0, 1), torch.zeros(0, 1)
        left, right = (self._kept.values(side).contiguous().view(torch.float32) for side in ("left", "right"))
        return left, right

    def merge(self, other: PairSample) -> None:
        """Add the pairs that the other kept."""
        if other._kept is not None:
            self._fitting(other._widths).merge(other._kept)

    def state(self) -> dict[str, Tensor]:
        """Return keys, row numbers, contents, and the bits of both sides."""
        return {} if self._kept is None else self._kept.state()

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        widths = tuple(state[side].shape[1] if state[side].ndim > 1 else 0 for side in ("left", "right"))
        if 0 in widths:
            raise MergeError(f"`left` and `right` must have two axes, got dimensions {widths}; the state is damaged")
        kept = _empty(self.capacity, (widths[0], widths[1]))
        kept.load(state, dimension)
        self._kept, self._widths = kept, (widths[0], widths[1])

    def memory(self, dimension: int) -> int:
        """Return an upper bound of its size in bytes, `dimension` that of the wider side."""
        return 2 * self.capacity * (8 + NUMBERS + 2 * 4 * dimension)


def _bits(rows: Tensor) -> Tensor:
    """Return the bits of float32 rows as whole numbers. (N, D) -> (N, D) int32."""
    return rows.float().contiguous().view(torch.int32)


def _empty(capacity: int, widths: tuple[int, int]) -> SmallestKeys:
    return SmallestKeys(
        capacity,
        {
            "left": ((widths[0],), torch.int32, "first"),
            "right": ((widths[1],), torch.int32, "first"),
            "content": ((), torch.int64, "first"),
            "id": ((), torch.int64, "first"),
        },
        ties=("content",),
    )
