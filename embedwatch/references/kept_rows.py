"""KeptRows: the sample of rows that a reference keeps, with what people call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError
from embedwatch.sketches import SmallestKeys

__all__ = ["CAPACITY", "KeptRows", "empty_sample"]

CAPACITY = 4096
LARGEST = torch.finfo(torch.float16).max
MOST_NAME = 256
Names = Callable[[Sequence[int]], Sequence[str]]


@dataclass(frozen=True)
class KeptRows:
    """A uniform sample of the finite rows, in float16.

    Args:
        keys: hash of each row's identity, ascending, (m,) int64: the smallest of all rows', so that samples merge.
        numbers: number of each row in the reference, (m,) int64.
        rows: (m, D) float16.
        names: what people call rows, by number, where they have a name.
    """

    keys: Tensor
    numbers: Tensor
    rows: Tensor
    names: Mapping[int, str]

    def __post_init__(self) -> None:
        count = len(self.keys)
        wanted = ((self.keys, torch.int64, 1), (self.numbers, torch.int64, 1), (self.rows, torch.float16, 2))
        held = all(each.dtype == kind and each.ndim == axes and len(each) == count for each, kind, axes in wanted)
        if not held or count > CAPACITY or not bool(self.rows.isfinite().all()):
            raise InputError(
                f"kept rows must be at most {CAPACITY:,} finite rows in float16 with a number each, got others; "
                "create the reference again"
            )

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, sample: SmallestKeys, names: Names | None = None) -> KeptRows:
        """Return what a sample holds, with names where rows have one."""
        keys, numbers, rows = sample.keys, sample.values("number"), sample.values("rows")
        order = torch.argsort(numbers).tolist()
        wanted = numbers[order].tolist() if len(keys) else []
        found = dict(zip(wanted, names(wanted), strict=True)) if names is not None and wanted else {}
        named = {number: name[:MOST_NAME] for number, name in found.items() if name != str(number)}
        return cls(keys, numbers, rows.clamp(-LARGEST, LARGEST).half(), named)

    def merged(self, other: KeptRows) -> KeptRows:
        """Return the sample of all rows of both: the same as of one pass."""
        keys = torch.cat([self.keys, other.keys])
        order = torch.argsort(keys, stable=True)[:CAPACITY]
        numbers, rows = (torch.cat(pair)[order] for pair in ((self.numbers, other.numbers), (self.rows, other.rows)))
        kept = set(numbers.tolist())
        names = {number: name for number, name in {**self.names, **other.names}.items() if number in kept}
        return KeptRows(keys[order], numbers, rows, names)


def empty_sample() -> SmallestKeys:
    """Return an empty sample for `offer`."""
    return SmallestKeys(CAPACITY, {"number": ((), torch.int64, "first"), "rows": (("D",), torch.float32, "first")})


def offer(sample: SmallestKeys, batch: VectorBatch) -> None:
    """Offer the finite rows of a batch."""
    clean = batch.clean
    if len(clean):
        sample.add(clean.keys, number=clean.numbers, rows=clean.rows.float())
