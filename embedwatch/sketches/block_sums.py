"""BlockSums: sums over blocks of consecutive rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embedwatch.core.errors import MergeError
from embedwatch.geometry.blocks import Blocks, join_blocks, joined
from embedwatch.sketches.base import Sketch, check_tensor

__all__ = ["BlockSums"]


class BlockSums(Sketch):
    """Number and sums of the rows of each block, a block being all rows whose number divided by its size is the same.

    When there are more than `most` blocks they are joined in pairs. How often that happens depends on the set of blocks
    alone, so any order, split and merge gives the same. Merge is exact to rounding.

    Args:
        width: numbers W of a row.
        unit: row numbers that a block spans at first.
        most: blocks that are kept.

    Example:
        >>> sums = BlockSums(1, unit=2, most=2)
        >>> sums.add(torch.arange(6), torch.ones(6, 1))
        >>> sums.size, sums.blocks.rows.tolist()
        (4, [4, 2])
    """

    def __init__(self, width: int, *, unit: int, most: int) -> None:
        self.width, self.unit, self.most = width, unit, most
        self.size = unit
        self._blocks = self._empty()

    def _empty(self) -> Blocks:
        none = torch.zeros(0, dtype=torch.int64)
        return Blocks(none, none, torch.zeros(0, self.width, dtype=torch.float64))

    @property
    def blocks(self) -> Blocks:
        """What is kept, by row number."""
        return self._blocks

    def add(self, ids: Tensor, values: Tensor) -> None:
        """Add rows: their numbers (N,) and their columns (N, W) float64."""
        keys = torch.div(ids, self.size, rounding_mode="floor").cpu()
        self._take(Blocks(keys, torch.ones_like(keys), values.cpu()), self.size)

    def merge(self, other: BlockSums) -> None:
        """Add what the other saw."""
        self._take(other._blocks, other.size)

    def without(self, before: int) -> Blocks:
        """Return the blocks all of whose rows have at least this number."""
        kept = self._blocks.keys * self.size >= before
        return Blocks(*(part[kept] for part in self._blocks))

    def _take(self, more: Blocks, size: int) -> None:
        if not len(more.keys):
            return
        common = max(size, self.size)
        blocks = join_blocks([joined(self._blocks, common // self.size), joined(more, common // size)])
        while len(blocks.keys) > self.most:
            blocks, common = joined(blocks, 2), 2 * common
        self._blocks, self.size = blocks, common

    def state(self) -> dict[str, Tensor]:
        """Return size, keys, numbers of rows and sums."""
        if not len(self._blocks.keys):
            return {}
        return {"size": torch.tensor(self.size), **self._blocks._asdict()}

    def load(self, state: Mapping[str, Tensor], dimension: int) -> None:
        """Take over what `state` gave."""
        del dimension
        if not state:
            return
        size = int(check_tensor("size", state["size"], (), torch.int64))
        keys = check_tensor("keys", state["keys"], (None,), torch.int64)
        times, rest = divmod(size, self.unit)
        if rest or times < 1 or times & (times - 1):
            raise MergeError(f"`size` must be {self.unit} times a power of two, got {size}; the state is damaged")
        if not 0 < len(keys) <= self.most or bool((keys[1:] <= keys[:-1]).any()):
            raise MergeError(f"`keys` must be 1 to {self.most}, ascending and distinct; the state is damaged")
        rows = check_tensor("rows", state["rows"], (len(keys),), torch.int64)
        if bool((rows < 1).any()):
            raise MergeError(f"`rows` must be at least 1 in each block, got {int(rows.min())}; the state is damaged")
        sums = check_tensor("sums", state["sums"], (len(keys), self.width), torch.float64)
        self._blocks, self.size = Blocks(keys, rows, sums), size

    def memory(self, dimension: int) -> int:
        """Return its size in bytes."""
        del dimension
        return 8 + self.most * 8 * (2 + self.width)
