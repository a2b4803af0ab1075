"""LabelledSource: any Source with labels from a text file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.sources._labels import Labels

__all__ = ["LabelledSource"]


class LabelledSource(Source):
    """Another Source, with the group of each row read from a text file: one label a line, an empty line for none.

    Args:
        source: where the vectors come from. Labels that it has itself are replaced.
        labels: the text file.

    Raises:
        InputError: if the file cannot be read, or has another number of lines than the source has rows: at once where
            the source knows how many it has, else when its last row is read.
    """

    def __init__(self, source: Source, labels: str | Path) -> None:
        self.source = source
        self._labels = Labels(labels)
        if source.rows is not None:
            self._labels.check(source.rows, "row", source.label)
        self.place = source.place
        self.role = source.role
        self.label = source.label
        self.rows = source.rows
        self.batch_rows = source.batch_rows
        self.dimension = source.dimension
        self.notes = source.notes

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return false: it wraps another source."""
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> LabelledSource:
        """Refuse: it wraps another source."""
        raise UsageError(f"`{path}` must be opened by its own source; wrap that: LabelledSource(source, labels)")

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield the batches of the source, with labels."""
        return self._labelled(self.source.batches(size))

    def _labelled(self, batches: Iterator[VectorBatch]) -> Iterator[VectorBatch]:
        for batch in self._labels.attach(batches, "row", self.label):
            self.notes = self.source.notes  # they may grow while it is read
            yield batch

    def fingerprint(self) -> str:
        """Return a short hash that changes when the vectors or the labels do."""
        return f"{self.source.fingerprint()}-{self._labels.fingerprint()}"

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return what the source calls these rows."""
        return self.source.names(rows)
