"""Reading rows that are compared: sources opened alike, in one type of numbers, numbered through."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.geometry.unit_length import have_unit_length
from embedwatch.sources import open_source

__all__ = ["COARSER", "Given", "Progress", "RowReader", "coarser", "open_rows", "silent"]

Given = str | os.PathLike[str] | Source
Progress = Callable[[str, "int | None"], AbstractContextManager[Callable[[int], None]]]
"""Called with a description and the number of rows, where it is known; the context takes the rows done so far."""
COARSER = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
PEEK_ROWS = 256
"""Rows that are read first, to see what they are."""


def open_rows(
    given: Sequence[Given],
    *,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    labels: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
) -> list[tuple[str, Source]]:
    """Return sources with the names that people have for them: what `audit` takes, or texts that a model encodes.

    Args:
        given: paths or opened sources.
        model: encodes the paths, which are then files with one text a line.
        kind: kind of the paths, where one is ambiguous.
        select: array, tensor or column to read.
        labels: column with the group of each row.
        pooling: how token vectors become one, with `model`.
        prefix: put before each text, with `model`.

    Raises:
        InputError: if an input cannot be read.
        UsageError: if an argument does not fit.

    Example:
        >>> open_rows(["a.npy"], prefix="query: ")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.UsageError: `prefix` must come with `model`, got 'query: ' alone; name the model that \
encodes
    """
    for each in given:
        if not isinstance(each, str | os.PathLike | Source):
            raise UsageError(
                f"rows must be given as a path or a Source, got {type(each).__name__}; save an array with numpy.save"
            )
    if model is None:
        for name, value in (("pooling", pooling), ("prefix", prefix)):
            if value is not None:
                raise UsageError(f"`{name}` must come with `model`, got {value!r} alone; name the model that encodes")
        opened = [
            each if isinstance(each, Source) else open_source(each, kind, select=select, labels=labels)
            for each in given
        ]
        return [(source.label, source) for source in opened]
    for name, value in (("kind", kind), ("select", select), ("labels", labels)):
        if value is not None:
            raise UsageError(f"`{name}` must be left out with `model`, which reads texts, got {value!r}; drop it")
    from embedwatch.loading import load_subject
    from embedwatch.sources.subject import EncodedTexts

    subject = load_subject(Path(model))
    found: list[tuple[str, Source]] = []
    for each in given:
        if isinstance(each, Source):
            raise UsageError(f"texts must be given as files with `model`, got {each.label}; name their paths")
        found.append((Path(each).name, EncodedTexts(subject, Path(each), pooling=pooling, prefix=prefix)))
    return found


class RowReader:
    """Reads one source, and keeps in mind what it read.

    Args:
        name: what people call it.
        source: opened.
        progress: shows the rows done.
        start: number of its first row.
    """

    def __init__(self, name: str, source: Source, progress: Progress | None = None, *, start: int = 0) -> None:
        self.name, self.source, self.start = name, source, start
        self._progress = progress or silent
        first = next(iter(source.batches(min(source.batch_rows, PEEK_ROWS))), None)
        self.dtype = None if first is None else first.rows.dtype
        self.dimension: int | None = source.dimension if first is None else first.dimension
        self.cast: torch.dtype | None = None
        self.rows, self.content = 0, 0
        self.nonfinite, self.unit = 0, 0

    @property
    def is_unit(self) -> bool | None:
        """Whether all finite rows read so far have length 1; `None` where there were none."""
        finite = self.rows - self.nonfinite
        return None if not finite else self.unit == finite

    def count(self) -> int:
        """Return the number of rows, known or counted."""
        if self.source.rows is not None:
            return self.source.rows
        return sum(len(batch) for batch in self.source.batches(self.source.batch_rows))

    def batches(self) -> Iterator[VectorBatch]:
        """Yield the rows, numbered through, in the type in which they are compared."""
        self.rows, self.content, self.nonfinite, self.unit = 0, 0, 0, 0
        with self._progress(f"{self.name}/{self.source.place}", self.source.rows) as advance:
            for batch in self.source.batches(self.source.batch_rows):
                cast = batch if self.cast is None else replace(batch, rows=_cast(batch.rows, self.cast))
                if self.start or cast.ids is None:
                    numbers = torch.arange(len(batch)) + self.rows if cast.ids is None else cast.ids
                    cast = replace(cast, ids=numbers + self.start)
                finite = cast.finite
                self.rows += len(batch)
                self.nonfinite += int((~finite).sum())
                self.unit += int((have_unit_length(cast.norms) & finite).sum())
                self.content = (self.content + int(cast.content.sum())) % 2**64
                yield cast
                advance(self.rows)

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return what people call rows, by the numbers that they have here."""
        return self.source.names([number - self.start for number in numbers])


def coarser(*dtypes: torch.dtype | None) -> torch.dtype | None:
    """Return the type to which all are brought, so that rounding is no difference; `None` where they are alike.

    Example:
        >>> coarser(torch.float32, torch.float16)
        torch.float16
    """
    known = {dtype for dtype in dtypes if dtype is not None}
    return min(known, key=COARSER.index) if len(known) > 1 else None


def check_dimensions(readers: Sequence[RowReader]) -> None:
    """Refuse sources of several dimensions.

    Raises:
        InputError: naming the first that differs.
    """
    first = next((reader for reader in readers if reader.dimension is not None), None)
    for reader in readers:
        if first is not None and reader.dimension not in (None, first.dimension):
            raise InputError(
                f"{reader.name} must have {first.dimension} dimensions like {first.name}, got {reader.dimension}; "
                "vectors of two models do not compare"
            )


@contextmanager
def silent(description: str, rows: int | None) -> Iterator[Callable[[int], None]]:
    """Show nothing."""
    del description, rows
    yield lambda done: None


def _cast(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows in another type, at its largest number where they exceed it."""
    largest = torch.finfo(dtype).max
    return torch.where(rows.isinf(), rows, rows.clamp(-largest, largest)).to(dtype)
