"""Source: where recorded vectors come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from embedwatch.core.registry import Plugin

__all__ = ["Source"]


class Source(Plugin, ABC):
    """Recorded vectors, read in batches, never all at once.

    A subclass is made by `open(path, **options)` and reads nothing but headers until `batches` is asked. It raises
    `InputError`, in one line with the value, the rule and the fix, for anything that is not what it claims to be.
    """

    kind: ClassVar[str] = "source"
    title: ClassVar[str] = ""
    place: str = "vectors"
    """Place of the Space that its rows belong to."""
    role: str = "vectors"
    """What sort of place that is, one of `embedwatch.core.snapshot.ROLES`: some checks hold for some roles."""
    batch_rows: int = 8192
    """Rows worth reading at a time; fewer where each takes long."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """File name endings, for people and for `accepts`."""

    label: str
    """Short name for people: the file name, the model's name."""
    rows: int | None
    """Number of rows where it is known before reading."""
    dimension: int | None
    """D where it is known before reading."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know: what was left out, how texts were pooled."""

    @classmethod
    @abstractmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether this file or folder looks like ours. Reads at most its first kilobytes; never raises."""

    @classmethod
    @abstractmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Source:
        """Open a file or folder.

        Args:
            path: where it lies.
            select: which array, tensor or column to read where there are several.
            labels: column that holds the group of each row, where the format has columns.
        """

    @abstractmethod
    def batches(self, size: int) -> Iterator[Any]:
        """Yield `VectorBatch` of at most `size` rows, in order, each with its row numbers. Can be called again."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short hash that changes when the content does."""

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return what people call these rows (words, tokens, ids, texts); the row numbers where they have no name."""
        return [str(row) for row in rows]
