"""Creating a reference from sources."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError
from embedwatch.core.snapshot import Space
from embedwatch.geometry.comparison import UNIT
from embedwatch.reading import Given, Progress, RowReader, check_dimensions, coarser, open_rows
from embedwatch.references.fitting import LEAST_ROWS, Fitting
from embedwatch.references.origin import Part
from embedwatch.references.reference import Reference

__all__ = ["create_reference", "reference_of"]

STRETCH = UNIT << 24
"""Numbers that are left for each source of a reference that is like another: blocks of any size begin there."""
PLACES = 1 << 30


def create_reference(
    *given: Given,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    like: Reference | None = None,
    keep_rows: bool = True,
    progress: Progress | None = None,
    boundary: Boundary | None = None,
) -> Reference:
    """Return a reference of the rows of all sources, one after the other, in the order of time.

    Args:
        given: paths or opened sources of one space.
        model: encodes the paths, which are then files with one text a line.
        kind: kind of the paths, where one is ambiguous.
        select: array, tensor or column to read.
        pooling: how token vectors become one, with `model`.
        prefix: put before each text, with `model`.
        like: a reference whose maps are taken: both can be merged, which is exact.
        keep_rows: whether a sample of 4,096 rows is kept.
        progress: shows rows done.
        boundary: where exceptions of statistics end.

    Raises:
        InputError: if an input cannot be read, has another dimension, or there are too few rows.
        UsageError: if an argument does not fit, or nothing can be fitted on the rows.

    Example:
        >>> import numpy, pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "faq.npy")
        ...     numpy.save(path, numpy.random.default_rng(0).normal(size=(1_000, 8)).astype("float32"))
        ...     create_reference(path).origin.rows
        1000
    """
    opened = open_rows(given, model=model, kind=kind, select=select, pooling=pooling, prefix=prefix)
    return reference_of([RowReader(name, source, progress) for name, source in opened], like, keep_rows, boundary)


def reference_of(
    readers: Sequence[RowReader],
    like: Reference | None = None,
    keep_rows: bool = True,  # noqa: FBT001, FBT002 -- of the two above
    boundary: Boundary | None = None,
) -> Reference:
    """Return a reference of the rows of some readers, which are read once."""
    if not readers:
        raise InputError("`sources` must name at least one, got none; name the files of healthy vectors")
    check_dimensions(readers)
    counts = [reader.count() for reader in readers]
    if like is None and sum(counts) < LEAST_ROWS:
        raise InputError(
            f"a reference must have at least {LEAST_ROWS} rows, got {sum(counts):,} in "
            f"{', '.join(reader.name for reader in readers)}; add rows"
        )
    dtype = coarser(*(reader.dtype for reader in readers))
    fitting = Fitting(rows=sum(counts), like=like, keep_rows=keep_rows, boundary=boundary)
    start, parts = 0, []
    for reader, count in zip(readers, counts, strict=True):
        mark = reader.source.fingerprint()
        reader.start = start if like is None else _apart(mark)
        reader.cast = reader.cast or dtype
        for batch in reader.batches():
            fitting.update(batch)
        parts.append(Part(reader.name, reader.rows, mark, reader.start))
        start += count
    if not fitting.fits:
        raise InputError(
            f"a reference must have at least {LEAST_ROWS} rows without NaN and Inf, got {fitting.finite:,} in "
            f"{', '.join(reader.name for reader in readers)}; add rows, or find out why they are not finite"
        )
    first = readers[0].source
    notes = dict.fromkeys(note for reader in readers for note in reader.source.notes)

    def names(numbers: Sequence[int]) -> list[str]:
        found: dict[int, str] = {}
        for reader, part in zip(readers, parts, strict=True):
            mine = [number for number in numbers if part.start <= number < part.start + part.rows]
            given = zip(mine, reader.names(mine) if mine else [], strict=True)
            found |= {number: name for number, name in given if name != str(number - part.start)}
        return [found.get(number, str(number)) for number in numbers]

    return fitting.reference(
        Space(first.label, first.place), parts, role=first.role, notes=list(notes), names=names if keep_rows else None
    )


def _apart(fingerprint: str) -> int:
    """Return the number at which the rows of a source begin, by its content: sources never overlap by chance."""
    mark = int.from_bytes(hashlib.blake2b(fingerprint.encode(), digest_size=8).digest(), "big")
    return (1 + mark % PLACES) * STRETCH
