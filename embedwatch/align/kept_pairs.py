"""A sample of pairs in memory that is taken once: those with the smallest keys, whatever their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.geometry.alignment import PairMoments

__all__ = ["KeptPairs", "Pairs"]

SLACK = 4
"""One more row in so many, before the sample is sorted again."""
COLUMNS = 64
"""Columns that are brought into order at a time, so that no second sample stands in memory."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of unit rows in float32, (N, D1) and (N, D2), with the numbers that they have, (N,)."""

    left: Tensor
    right: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return len(self.left)

    def take(self, index: Tensor | slice) -> Pairs:
        """Return some of them."""
        return Pairs(self.left[index], self.right[index], self.ids[index])

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """Return several as one."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("left", "right", "ids")))

    def moments(self) -> PairMoments:
        """Return their moments, exact where they are few."""
        return PairMoments.of(self.left.double(), self.right.double())


class KeptPairs:
    """The pairs with the smallest distinct keys: a uniform sample where keys are hashes of the left rows.

    Args:
        capacity: how many.
        left: D1.
        right: D2.
    """

    def __init__(self, capacity: int, left: int, right: int) -> None:
        self._capacity = capacity
        size = capacity + max(1, capacity // SLACK)
        self._rows = (torch.empty(size, left), torch.empty(size, right))
        self._numbers = torch.empty(3, size, dtype=torch.int64)  # keys, ids, contents of right rows
        self._used = 0
        self._largest: int | None = None

    def add(self, pairs: Pairs, keys: Tensor, contents: Tensor) -> None:
        """Offer pairs, with their keys and the contents of their right rows, (N,) each."""
        if self._largest is not None:
            near = (keys < self._largest).nonzero()[:, 0]
            if not len(near):
                return
            pairs, keys, contents = pairs.take(near), keys[near], contents[near]
        numbers = torch.stack([keys, pairs.ids, contents])
        done = 0
        while done < len(keys):
            count = min(len(keys) - done, len(self._rows[0]) - self._used)
            here, there = slice(self._used, self._used + count), slice(done, done + count)
            self._rows[0][here], self._rows[1][here] = pairs.left[there], pairs.right[there]
            self._numbers[:, here] = numbers[:, there]
            self._used, done = self._used + count, done + count
            if self._used == len(self._rows[0]):
                self._order()

    def _order(self) -> None:
        """Sort by key, and leave the smallest distinct ones: of two pairs with one key the first that came."""
        keys = self._numbers[0, : self._used]
        order = torch.argsort(keys, stable=True)
        fresh = torch.ones(len(order), dtype=torch.bool)
        fresh[1:] = keys[order][1:] != keys[order][:-1]
        order = order[fresh][: self._capacity]
        self._used = len(order)
        self._numbers[:, : self._used] = self._numbers[:, order]
        for rows in self._rows:
            for start in range(0, rows.shape[1], COLUMNS):
                part = slice(start, start + COLUMNS)
                rows[: self._used, part] = rows[order, part]
        if self._used == self._capacity:
            self._largest = int(self._numbers[0, self._used - 1])

    def pairs(self) -> Pairs:
        """Return the pairs in the order of their keys."""
        self._order()
        return Pairs(self._rows[0][: self._used], self._rows[1][: self._used], self._numbers[1, : self._used])

    @property
    def contents(self) -> Tensor:
        """Contents of the right rows, in whatever order until `pairs` was asked for. Shape: (N,)."""
        return self._numbers[2, : self._used]
