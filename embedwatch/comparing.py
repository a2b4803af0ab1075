"""The comparison of rows with a reference: a saved one, or one that is fitted on the way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from embedwatch.checks.drift import LEVEL
from embedwatch.comparison import Comparison, Side
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.check import Check
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.exhibit import NO_ID, Exhibit
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.source import Source
from embedwatch.geometry.truncation import looks_leading
from embedwatch.judging import Judge
from embedwatch.reading import PEEK_ROWS, Given, Progress, RowReader, coarser, open_rows
from embedwatch.references import Reference, is_reference, load_reference
from embedwatch.references.creating import reference_of
from embedwatch.segmenting import compare_segments
from embedwatch.stats.validity import Validity
from embedwatch.window import Window

__all__ = ["Comparison", "compare"]

LEAST_LEVEL = 0.0005
"""The smallest level that the most permutations can tell."""
FINE_LEVEL = 0.005
PERMUTATIONS, MANY_PERMUTATIONS = 999, 11_999
"""Labellings that are tried: the smallest p-value, six times their inverse, must lie below the level."""
LEVELLED = ("drift", "what_changed")
"""Checks that take the level."""
MANY_LOST = 0.01
"""Share of rows with NaN or Inf from which a reader is told."""


def compare(
    a: Given | Reference,
    b: Given,
    *,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    by: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
    progress: Progress | None = None,
    on_error: OnError = "count",
) -> Comparison:
    """Say whether the rows of `b` differ from those of `a`, how surely, by how much, and which rows and regions.

    Rows are taken in their order: a stream that keeps to a topic for a while is compared in blocks that are longer
    than that. The first half of `a` fits what the second half and `b` are measured by.

    Args:
        a: the reference: a saved one, or rows: a path that `audit` takes, or a Source.
        b: what is compared with it, opened the same way.
        model: a model that encodes both, which are then files with one text a line.
        kind: kind of both inputs, where a path is ambiguous.
        select: array, tensor or column to read, where a file holds several.
        pooling: how token vectors become one, with `model`; the model's own by default.
        prefix: put before each text, with `model`; the model's own by default.
        by: column with the segment of each row: each segment is compared by itself, their mix too, and the whole at the
            shares of segments that `a` has.
        level: share of healthy pairs that may be called different; by segments it is that of all of them together.
        seed: of the permutations.
        progress: shows rows done.
        on_error: what happens to exceptions of a Statistic or Check.

    Raises:
        InputError: if an input cannot be read, has too few rows for a reference, or another dimension.
        UsageError: if an argument does not fit.

    Example:
        >>> import numpy, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     paths = Path(folder, "old.npy"), Path(folder, "new.npy")
        ...     for number, path in enumerate(paths):
        ...         numpy.save(path, numpy.random.default_rng(number).normal(size=(1_000, 8)).astype("float32"))
        ...     compare(*paths).status
        'ok'
    """
    if isinstance(level, bool) or not isinstance(level, int | float) or not LEAST_LEVEL <= level < 1:
        raise UsageError(f"`level` must be a number from {LEAST_LEVEL:g} to 1, got {level!r}; 0.01 is usual")
    started = time.perf_counter()
    boundary = Boundary(on_error=on_error)
    saved = _saved(a)
    if by is not None:
        if saved is not None or isinstance(a, Reference) or model is not None:
            what = "a saved reference, which has no segments" if model is None else "`model`, which reads texts"
            raise UsageError(f"`by` must be left out with {what}, got {by!r}; give vectors with a column of segments")
        pair = open_rows([a, b], kind=kind, select=select, labels=by)
        _check_pair(*(RowReader(name, source) for name, source in pair))

        def part(left: Source, right: Source, at: float) -> Comparison:
            rest = {"seed": seed, "progress": progress, "on_error": on_error}
            return compare(left, right, level=max(LEAST_LEVEL, at), **rest)  # type: ignore[arg-type]

        tries = PERMUTATIONS if level >= FINE_LEVEL else MANY_PERMUTATIONS
        found = compare_segments(pair, by, part, level=level, permutations=tries, seed=seed)
        return replace(found, seconds=time.perf_counter() - started)
    given: list[Given] = [b] if saved is not None or isinstance(a, Reference) else [a, b]
    opened = open_rows(given, model=model, kind=kind, select=select, pooling=pooling, prefix=prefix)
    *first, right = (RowReader(name, source, progress) for name, source in opened)
    if saved is None:
        (left,) = first
        _check_pair(left, right)
        left.cast = right.cast = coarser(left.dtype, right.dtype)
        stored = str(left.dtype).removeprefix("torch.")
        reference, same = reference_of([left], boundary=boundary), left
    else:
        reference, same, stored = saved, None, saved.origin.dtype
        reference.check_dimension(right.dimension, right.name)
        right.cast = coarser(right.dtype, getattr(torch, saved.origin.dtype, None))
    window = _window(reference, right, boundary, level, seed)
    snapshot = _snapshot(window, reference, right, (*_remarks(reference, right, same, stored), *right.source.notes))
    verdicts = Judge([_made(check, level) for check in _checks(window)], boundary=boundary).judge(snapshot)
    exhibits = tuple(_named(exhibit, reference, right) for exhibit in window.exhibits())
    errors = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
    taken = time.perf_counter() - started
    origin = reference.origin
    side = Side(", ".join(part.label for part in origin.parts), origin.rows, origin.parts[0].fingerprint, origin.notes)
    return Comparison(side, snapshot, tuple(verdicts), exhibits, level, taken, errors)


def _saved(a: Given | Reference) -> Reference | None:
    if isinstance(a, Reference):
        return a
    return load_reference(Path(a)) if isinstance(a, str | os.PathLike) and is_reference(Path(a)) else None


def _check_pair(left: RowReader, right: RowReader) -> None:
    if None not in (left.dimension, right.dimension) and left.dimension != right.dimension:
        raise InputError(
            f"`b` must have {left.dimension} dimensions like {left.name}, got {right.dimension} in {right.name}; "
            f"{_why_shorter(left, right)}"
        )


def _why_shorter(left: RowReader, right: RowReader) -> str:
    """Return what to do about another dimension: where the leading ones were kept, that is said."""
    sources = [reader.source for reader in (left, right)]
    first = [next(iter(source.batches(min(source.batch_rows, PEEK_ROWS))), None) for source in sources]
    if first[0] is not None and first[1] is not None and looks_leading(first[0].clean.rows, first[1].clean.rows):
        return (
            f"{right.name} looks like the first {right.dimension} of {left.dimension} dimensions: restore the others, "
            "or cut both alike"
        )
    return "vectors of two models do not compare"


def _window(reference: Reference, right: RowReader, boundary: Boundary, level: float, seed: int) -> Window:
    """Measure the rows that are compared."""
    permutations = PERMUTATIONS if level >= FINE_LEVEL else MANY_PERMUTATIONS
    compared = reference.statistics(settings={"drift": {"permutations": permutations, "seed": seed}})
    window = Window([*compared, Validity()], boundary=boundary)
    for batch in right.batches():
        window.update(batch)
    window.close(time.time())
    return window


def _checks(window: Window) -> list[type[Check]]:
    """Return the checks that read what is compared, and nothing else."""
    shown = {metric.name for statistic in window.statistics.values() for metric in statistic.metrics}
    return [check for check in registered(Check).values() if check.reads and shown.issuperset(check.reads)]


def _made(check: type[Check], level: float) -> Check:
    return check(level=level) if check.name in LEVELLED else check()  # type: ignore[call-arg]


def _snapshot(window: Window, reference: Reference, right: RowReader, notes: tuple[str, ...]) -> Snapshot:
    source = right.source
    expected = window.rows if source.rows is None else source.rows
    return window.snapshot(
        Space(source.label, source.place),
        fingerprint=source.fingerprint(),
        coverage={"rows_expected": expected, "rows_read": window.rows, "reference_rows": reference.origin.rows},
        notes=notes,
        role=source.role,
    )


def _remarks(reference: Reference, right: RowReader, left: RowReader | None, stored: str) -> Iterator[str]:
    """Yield what a reader of the numbers must know about both."""
    origin = reference.origin
    name = ", ".join(part.label for part in origin.parts)
    yield f"{right.name} is compared with {name}: {origin.rows:,} rows, fingerprint {origin.parts[0].fingerprint[:8]}"
    if left is not None and (left.rows, left.content) == (right.rows, right.content):
        yield "both hold the same rows, bit for bit"
    found = str(right.dtype).removeprefix("torch.")
    if right.dtype is not None and stored != found:
        cast = str(right.cast).removeprefix("torch.")
        told = "rounding may show" if left is None else f"both are compared as {cast}"
        yield f"stored as {stored} and {found}: {told}"
    for reader in (left, right):
        if reader is not None and reader.nonfinite > MANY_LOST * reader.rows:
            yield f"{reader.nonfinite:,} of {reader.rows:,} rows of {reader.name} hold NaN or Inf and are left out"
    if right.is_unit is not None and origin.is_unit != right.is_unit:
        unit, other = (name, right.name) if origin.is_unit else (right.name, name)
        yield f"rows of {unit} have length 1 and those of {other} do not: normalise both, or neither"


def _named(exhibit: Exhibit, reference: Reference, right: RowReader) -> Exhibit:
    """Return an exhibit with the names that each source has for its rows."""
    if "reference_row" not in exhibit.columns:
        return exhibit.with_names(right.source.names)
    place = exhibit.columns.index("reference_row")
    numbers = sorted({int(row[place] or 0) for row in exhibit.rows if row[place] != NO_ID})
    names: dict[Any, str] = dict(zip(numbers, reference.names(numbers), strict=True))
    if all(name == str(number) for number, name in names.items()):
        return exhibit
    return exhibit.with_column(place + 1, "name", [names.get(row[place]) for row in exhibit.rows])
