"""FileSource: what all sources that read files have in common. It is registered under no name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.sources._files import fingerprint, reading
from embedwatch.sources._messages import count_of, label_of

__all__ = ["Block", "FileSource"]


class Block(NamedTuple):
    """Rows (N, D) as they come from the file, and the code of each row's group (N,) where the file has groups."""

    rows: Tensor
    labels: Tensor | None = None
    groups: Sequence[str] = ()


class FileSource(Source):
    """A Source that lies in a file. A subclass reads headers in `open` and yields blocks of rows in `blocks`."""

    def __init__(
        self,
        path: Path,
        *,
        rows: int | None,
        dimension: int | None,
        select: str | None = None,
        labels: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.label = label_of(path)
        self.rows = rows
        self.dimension = dimension
        self.select = select
        self.labels = labels
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r}, rows={self.rows}, dimension={self.dimension})"

    @abstractmethod
    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Yield the rows in order, at most `size` at a time."""

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield `VectorBatch` of at most `size` rows (fewer where they would be too large), numbered from 0."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UsageError(f"`size` must be a whole number of at least 1, got {size!r}; 8192 is a good one")
        return self._numbered(size)

    def _numbered(self, size: int) -> Iterator[VectorBatch]:
        start = 0
        with reading(self.path), closing(self.blocks(size)) as blocks:  # closed at once when the caller goes away
            for block in blocks:
                end = start + len(block.rows)
                ids = torch.arange(start, end, dtype=torch.int64)
                yield VectorBatch(block.rows, ids, block.labels, block.groups, source=self.label)
                start = end
        if self.rows is not None and start != self.rows:
            raise InputError(
                f"{self.label} gave {count_of(start, 'row')}, it promised {self.rows:,}; it changed while it was read"
            )

    def fingerprint(self) -> str:
        """Return 16 hex digits over the file's size, first and last MiB, and the options it was opened with."""
        return fingerprint(self.path, self.select, self.labels)

    @classmethod
    def refuse_options(cls, *, select: str | None = None, labels: str | None = None) -> None:
        """Refuse options that this format has no use for."""
        for option, value, have in (
            ("select", select, "arrays or columns to choose from"),
            ("labels", labels, "columns"),
        ):
            if value is not None:
                raise UsageError(
                    f"`{option}` must be left out for {cls.name}, which has no {have}, got {value!r}; drop it"
                )
