"""ChosenRows: some rows of any Source, in their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source

__all__ = ["ChosenRows"]


class ChosenRows(Source):
    """Some rows of another Source, in their order, numbered anew from 0; their names are those that they had.

    Args:
        source: where the rows come from.
        chosen: which of them are kept, (rows of the source,) bool.

    Raises:
        InputError: when its last row is read, if the source has another number of rows than `chosen`.
    """

    def __init__(self, source: Source, chosen: Tensor) -> None:
        if chosen.ndim != 1 or chosen.dtype != torch.bool:
            raise UsageError(
                f"`chosen` must be bool (N,), got {chosen.dtype} {tuple(chosen.shape)}; compare to make it"
            )
        self.source, self._chosen = source, chosen
        self._places = chosen.nonzero()[:, 0]
        self.place, self.role, self.label = source.place, source.role, source.label
        self.batch_rows, self.dimension, self.notes = source.batch_rows, source.dimension, source.notes
        self.rows = len(self._places)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return false: it wraps another source."""
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> ChosenRows:
        """Refuse: it wraps another source."""
        raise UsageError(f"`{path}` must be opened by its own source; wrap that: ChosenRows(source, chosen)")

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield the chosen rows of each batch that has some."""
        read, given = 0, 0
        for batch in self.source.batches(size):
            kept = (
                batch.take(self._chosen[read : read + len(batch)]) if read + len(batch) <= len(self._chosen) else None
            )
            read += len(batch)
            if kept is None:
                break
            if len(kept):
                kept.ids = torch.arange(given, given + len(kept))
                given += len(kept)
                yield kept
        if read != len(self._chosen):
            raise InputError(
                f"{self.label} must have {len(self._chosen):,} rows as before, got {read:,}; let it be while it is read"
            )

    def fingerprint(self) -> str:
        """Return a short hash that changes when the source or the choice does."""
        mark = hashlib.blake2b(self._chosen.to(torch.uint8).numpy().tobytes(), digest_size=4).hexdigest()
        return f"{self.source.fingerprint()}-{mark}"

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return what the source calls these rows."""
        return self.source.names([int(self._places[row]) for row in rows])
