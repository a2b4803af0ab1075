"""The comparison of two sources: the first is the reference, the second is judged against it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.checks.drift import LEVEL
from embedwatch.checks.drift import Drift as DriftCheck
from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.exhibit import NO_ID, Exhibit
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.source import Source
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst
from embedwatch.judging import Judge
from embedwatch.sources import open_source
from embedwatch.stats.drift import Drift
from embedwatch.window import Window

__all__ = ["COMPARISON_SCHEMA", "Comparison", "Side", "compare"]

COMPARISON_SCHEMA = 1
"""Version of the JSON that a Comparison writes."""
LEAST_LEVEL = 0.0005
"""The smallest level that the most permutations can tell."""
FINE_LEVEL = 0.005
PERMUTATIONS, MANY_PERMUTATIONS = 999, 9_999
"""Labellings that are tried: the smallest p-value, four times their inverse, must lie below the level."""
LEAST_REFERENCE = 200
"""Rows of a reference: half of them fit, and ten blocks of ten calibrate."""
COARSER = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
UNIT_LENGTH = 2e-3
"""Norms within this of 1 are those of normalised rows, also in half precision."""
PEEK_ROWS = 256
"""Rows that are read first, to see what both are."""
Progress = Callable[[str, "int | None"], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True)
class Side:
    """One of the two sources, as it was read."""

    label: str
    rows: int
    fingerprint: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"label": self.label, "rows": self.rows, "fingerprint": self.fingerprint, "notes": list(self.notes)}


@dataclass(frozen=True)
class Comparison:
    """What a comparison found: the second source as a Space, judged against the first.

    Args:
        reference: the first source.
        snapshot: measurements of the second beside it.
        verdicts: whether they differ.
        exhibits: which rows and regions.
        level: share of healthy pairs that may be called different.
        seconds: that it took.
        errors: exceptions of ours that were counted: (stage, name, number).
    """

    reference: Side
    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...]
    level: float
    seconds: float
    errors: tuple[tuple[str, str, int], ...] = ()

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.verdicts if verdict.status != "unknown"])

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": COMPARISON_SCHEMA,
            "status": self.status,
            "counts": self.counts(),
            "level": self.level,
            "reference": self.reference.to_json(),
            "snapshot": self.snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "seconds": self.seconds,
        }


def compare(
    a: str | os.PathLike[str] | Source,
    b: str | os.PathLike[str] | Source,
    *,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
    progress: Progress | None = None,
    on_error: OnError = "count",
) -> Comparison:
    """Say whether the rows of `b` differ from those of `a`, how surely, by how much, and which rows and regions.

    Rows are taken in their order: a stream that keeps to a topic for a while is compared in blocks that are longer
    than that. The first half of `a` fits what the second half and `b` are measured by.

    Args:
        a: the reference: a path that `audit` takes, or a Source.
        b: what is compared with it, opened the same way.
        model: a model that encodes both, which are then files with one text a line.
        kind: kind of both inputs, where a path is ambiguous.
        select: array, tensor or column to read, where a file holds several.
        pooling: how token vectors become one, with `model`; the model's own by default.
        prefix: put before each text, with `model`; the model's own by default.
        level: share of healthy pairs that may be called different.
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
    if not LEAST_LEVEL <= level < 1:
        raise UsageError(f"`level` must be from {LEAST_LEVEL:g} to 1, got {level:g}; 0.01 is usual")
    started = time.perf_counter()
    show = progress or _silent
    left, right = (
        _Reader(name, source, show) for name, source in _opened((a, b), model, kind, select, pooling, prefix)
    )
    _agree(left, right)
    boundary = Boundary(on_error=on_error)
    window = _window(left, right, boundary, level, seed)
    snapshot = _snapshot(window, left, right)
    verdicts = Judge([DriftCheck(level=level)], boundary=boundary).judge(snapshot)
    exhibits = tuple(_named(exhibit, left.source, right.source) for exhibit in window.exhibits())
    errors = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
    taken = time.perf_counter() - started
    return Comparison(left.side(), snapshot, tuple(verdicts), exhibits, level, taken, errors)


class _Reader:
    """Reads one source, and keeps in mind what it read."""

    def __init__(self, name: str, source: Source, progress: Progress) -> None:
        self.name, self.source = name, source
        self._progress = progress
        first = next(iter(source.batches(min(source.batch_rows, PEEK_ROWS))), None)
        self.dtype = None if first is None else first.rows.dtype
        self.dimension: int | None = source.dimension if first is None else first.dimension
        self.is_unit = first is not None and bool(((first.clean.norms - 1).abs() < UNIT_LENGTH).all())
        self.cast: torch.dtype | None = None
        self.rows, self.content = 0, 0

    def count(self) -> int:
        """Return the number of rows, known or counted."""
        if self.source.rows is not None:
            return self.source.rows
        return sum(len(batch) for batch in self.source.batches(self.source.batch_rows))

    def batches(self) -> Iterator[VectorBatch]:
        """Yield the rows in the type in which both are compared."""
        self.rows, self.content = 0, 0
        with self._progress(f"{self.name}/{self.source.place}", self.source.rows) as advance:
            for batch in self.source.batches(self.source.batch_rows):
                cast = batch if self.cast is None else replace(batch, rows=_cast(batch.rows, self.cast))
                self.rows += len(batch)
                self.content = (self.content + int(cast.content.sum())) % 2**64
                yield cast
                advance(self.rows)

    def side(self) -> Side:
        """Return what was read."""
        return Side(self.name, self.rows, self.source.fingerprint(), self.source.notes)


def _cast(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Return rows in another type, at its largest number where they exceed it."""
    largest = torch.finfo(dtype).max
    return torch.where(rows.isinf(), rows, rows.clamp(-largest, largest)).to(dtype)


def _opened(
    given: Sequence[str | os.PathLike[str] | Source],
    model: str | os.PathLike[str] | None,
    kind: str | None,
    select: str | None,
    pooling: str | None,
    prefix: str | None,
) -> list[tuple[str, Source]]:
    """Return both sources with the names that people have for them."""
    if model is None:
        for name, value in (("pooling", pooling), ("prefix", prefix)):
            if value is not None:
                raise UsageError(f"`{name}` must come with `model`, got {value!r} alone; name the model that encodes")
        sources = [each if isinstance(each, Source) else open_source(each, kind, select=select) for each in given]
        return [(source.label, source) for source in sources]
    for name, value in (("kind", kind), ("select", select)):
        if value is not None:
            raise UsageError(f"`{name}` must be left out with `model`, which reads texts, got {value!r}; drop it")
    from embedwatch.loading import load_subject
    from embedwatch.sources.subject import EncodedTexts

    subject = load_subject(Path(model))
    found: list[tuple[str, Source]] = []
    for each in given:
        if isinstance(each, Source):
            raise UsageError(f"`a` and `b` must be files of texts with `model`, got {each.label}; name their paths")
        found.append((Path(each).name, EncodedTexts(subject, Path(each), pooling=pooling, prefix=prefix)))
    return found


def _agree(left: _Reader, right: _Reader) -> None:
    """Refuse another dimension, and bring both to the coarser type: what rounding did is no drift."""
    if None not in (left.dimension, right.dimension) and left.dimension != right.dimension:
        raise InputError(
            f"`b` must have {left.dimension} dimensions like {left.name}, got {right.dimension} in {right.name}; "
            "vectors of two models do not compare"
        )
    if left.dtype is not None and right.dtype is not None and left.dtype != right.dtype:
        coarser = min(left.dtype, right.dtype, key=COARSER.index)
        left.cast = right.cast = coarser


def _window(left: _Reader, right: _Reader, boundary: Boundary, level: float, seed: int) -> Window:
    """Fit on the one, and measure the other."""
    total = left.count()
    if total < LEAST_REFERENCE:
        raise InputError(
            f"`a` must have at least {LEAST_REFERENCE} rows to be a reference, got {total:,} in {left.name}; add rows"
        )
    frozen = Drift.fit(left.batches(), rows=total)
    permutations = PERMUTATIONS if level >= FINE_LEVEL else MANY_PERMUTATIONS
    window = Window([Drift(frozen=frozen, permutations=permutations, seed=seed)], boundary=boundary)
    for batch in right.batches():
        window.update(batch)
    window.close(time.time())
    return window


def _snapshot(window: Window, left: _Reader, right: _Reader) -> Snapshot:
    source = right.source
    expected = window.rows if source.rows is None else source.rows
    return window.snapshot(
        Space(source.label, source.place),
        fingerprint=source.fingerprint(),
        coverage={"rows_expected": expected, "rows_read": window.rows, "reference_rows": left.rows},
        notes=(*_remarks(left, right), *source.notes),
        role=source.role,
    )


def _remarks(left: _Reader, right: _Reader) -> Iterator[str]:
    """Yield what a reader of the numbers must know about both."""
    yield f"{right.name} is compared with {left.name}: {left.rows:,} rows, fingerprint {left.source.fingerprint()[:8]}"
    if (left.rows, left.content) == (right.rows, right.content):
        yield "both hold the same rows, bit for bit"
    if left.cast is not None:
        types = [str(each.dtype).removeprefix("torch.") for each in (left, right)]
        yield f"stored as {types[0]} and {types[1]}: both are compared as {str(left.cast).removeprefix('torch.')}"
    if left.is_unit != right.is_unit and left.rows and right.rows:
        unit, other = (left.name, right.name) if left.is_unit else (right.name, left.name)
        yield f"rows of {unit} have length 1 and those of {other} do not: normalise both, or neither"


def _named(exhibit: Exhibit, left: Source, right: Source) -> Exhibit:
    """Return an exhibit with the names that each source has for its rows."""
    if "reference_row" not in exhibit.columns:
        return exhibit.with_names(right.names)
    place = exhibit.columns.index("reference_row")
    numbers = sorted({int(row[place] or 0) for row in exhibit.rows if row[place] != NO_ID})
    names: dict[Any, str] = dict(zip(numbers, left.names(numbers), strict=True))
    if all(name == str(number) for number, name in names.items()):
        return exhibit
    return exhibit.with_column(place + 1, "name", [names.get(row[place]) for row in exhibit.rows])


@contextmanager
def _silent(description: str, rows: int | None) -> Iterator[Callable[[int], None]]:
    del description, rows
    yield lambda done: None
