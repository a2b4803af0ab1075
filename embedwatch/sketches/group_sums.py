"""GroupSums: number and sum of rows for each of a bounded number of named groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.hashing import hash_text
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["GroupSums"]


class GroupSums(Sketch):
    """Number and sum (D,) of the rows of each group, for the `capacity` groups whose names have the smallest hashes.

    A name once pushed out can never return, since the largest kept hash only falls: so a kept group has seen all its
    rows, and any order, split and merge gives the same. Merge is exact.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._counts: dict[str, int] = {}
        self._sums: dict[str, Tensor] = {}
        self._largest: int | None = None
        self.dropped = False
        """Whether groups have been left out."""

    def add(self, names: Sequence[str], counts: Sequence[int], sums: Tensor) -> None:
        """Add to groups: names (G,), number of rows (G,), sums (G, D) float64. Groups without rows are passed over."""
        for name, count, total in zip(names, counts, sums, strict=True):
            if count == 0:
                continue
            if name in self._counts:
                self._counts[name] += count
                self._sums[name] += total.to(self._sums[name].device)
            elif self._largest is None or hash_text(name) < self._largest:
                self._counts[name], self._sums[name] = count, total.clone()
            else:
                self.dropped = True
        if len(self._counts) > self.capacity:
            self._prune()

    def _prune(self) -> None:
        kept = sorted(self._counts, key=hash_text)[: self.capacity]
        self._counts = {name: self._counts[name] for name in kept}
        self._sums = {name: self._sums[name] for name in kept}
        self._largest = hash_text(kept[-1])
        self.dropped = True

    @property
    def names(self) -> list[str]:
        """Names of the kept groups, in alphabetical order."""
        return sorted(self._counts)

    @property
    def counts(self) -> Tensor:
        """Number of rows of each, in the order of the names. Shape: (G,) int64."""
        return torch.tensor([self._counts[name] for name in self.names], dtype=torch.int64)

    @property
    def sums(self) -> Tensor:
        """Sum of the rows of each, in the order of the names. Shape: (G, D) float64."""
        if not self._sums:
            return torch.zeros(0, 0, dtype=torch.float64)
        return torch.stack([self._sums[name].cpu() for name in self.names])

    def merge(self, other: GroupSums) -> None:
        """Add what the other saw."""
        self.add(other.names, other.counts.tolist(), other.sums)
        self.dropped = self.dropped or other.dropped
        if other._largest is not None and (self._largest is None or other._largest < self._largest):
            self._largest = other._largest
            for name in [name for name in self._counts if hash_text(name) > other._largest]:
                del self._counts[name], self._sums[name]

    def state(self) -> dict[str, Any]:
        """Return names, counts and sums."""
        if not self._counts:
            return {}
        largest = [] if self._largest is None else [str(self._largest)]
        return {"names": self.names, "counts": self.counts, "sums": self.sums, "largest": largest}

    def load(self, state: Mapping[str, Any], dimension: int) -> None:
        """Take over what `state` gave."""
        if not state:
            return
        names, largest = state["names"], state["largest"]
        if len(set(names)) != len(names) or len(names) > self.capacity or not all(isinstance(n, str) for n in names):
            raise MergeError(
                f"`names` must be at most {self.capacity} different texts, got {len(names)}; it is damaged"
            )
        counts = check_tensor("counts", state["counts"], (len(names),), torch.int64)
        if bool((counts < 1).any()):
            raise MergeError(f"`counts` must be at least 1, got {int(counts.min())}; the state is damaged")
        self.add(names, counts.tolist(), check_tensor("sums", state["sums"], (len(names), dimension), torch.float64))
        if largest:
            self._largest, self.dropped = int(largest[0]), True

    def memory(self, dimension: int) -> int:
        """Return its size in bytes, with names of up to 64 characters."""
        return self.capacity * (8 * dimension + 8 + 64)
