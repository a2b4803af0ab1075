"""The health of an index: whether it finds what it should, and whether it holds what the present model writes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from embedwatch.ann.arrays import Matrix, sample_of
from embedwatch.ann.facts import IndexFacts
from embedwatch.ann.facts import IndexRecall as Recall
from embedwatch.ann.freshness import IndexFreshness as Freshness
from embedwatch.ann.freshness import Searched, freshness
from embedwatch.ann.indexes import IndexFile, opened
from embedwatch.ann.live import LiveIndex
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.source import Source
from embedwatch.diagnostics.index_freshness import IndexFreshness, IndexState
from embedwatch.diagnostics.index_recall import IndexRecall
from embedwatch.judged import Judged, cited
from embedwatch.judging import Judge
from embedwatch.selection import DiagnosticSelection
from embedwatch.sources import open_source
from embedwatch.sources.faiss import FaissSource
from embedwatch.window import library_versions

__all__ = ["PLACE", "Described", "IndexQuestions", "examine_index", "judge_index", "judge_live"]

PLACE = "index"
"""Place and role of the Space of an index, beside that of the vectors in it."""
K, QUERIES, IDS = 10, 200, 1000
"""Neighbours a query, queries, and ids of the present model that are looked at."""
SEED = 40
Given = str | os.PathLike[str] | Source


class Described(Protocol):
    """An index of which it is known what it is: a file or a live one."""

    @property
    def label(self) -> str:
        """What people call it."""

    @property
    def facts(self) -> IndexFacts:
        """What it is made of."""


@dataclass(frozen=True)
class IndexQuestions:
    """What is asked of an index.

    Args:
        queries: vectors of queries; without them, rows of the index are asked for their neighbours.
        present: vectors that the present model writes: row i for id i, or for the id that is its name.
        model: file or folder of the present model, to tell whether it is younger than the index.
    """

    queries: Given | None = None
    present: Given | None = None
    model: str | os.PathLike[str] | None = None

    def fingerprint(self, source: Source) -> str:
        """Return a hash that changes when the index does, or what it is asked with."""
        parts = [source.fingerprint()]
        for given in (self.queries, self.present):
            with suppress(EmbedwatchError):  # told when it is read
                parts += [] if given is None else [_source(given).fingerprint()]
        return "-".join(parts)

    def check(self, sources: Sequence[Source]) -> None:
        """Refuse questions about an index where there is none."""
        for name, value in (("queries", self.queries), ("present", self.present)):
            if value is not None and not any(isinstance(source, FaissSource) for source in sources):
                raise UsageError(
                    f"`{name}` must come with a FAISS index, got {sources[0].label}, which is none; name the index"
                )
            if value is not None:
                _check_width(name, _source(value), [each for each in sources if isinstance(each, FaissSource)])

    def check_live(self, index: LiveIndex) -> None:
        """Refuse vectors that do not fit a live index."""
        for name, value in (("queries", self.queries), ("present", self.present)):
            if value is not None:
                _check_width(name, _source(value), [index])


def _check_width(name: str, given: Source, indexes: Sequence[Described]) -> None:
    """Refuse vectors that fit no index: each of them would only be noted, once it is read."""
    widths = [index.facts.dimension for index in indexes]
    if given.rows == 0:
        raise InputError(f"`{name}` must hold vectors, got none in {given.label}; name a file with rows")
    if given.dimension is not None and given.dimension not in widths:
        raise InputError(
            f"`{name}` must have the {widths[0]} dimensions of {indexes[0].label}, got {given.dimension} in "
            f"{given.label}; embed with the model of the index, or build a new one for this model"
        )


def examine_index(
    index: Any,
    *,
    queries: Given | None = None,
    present: Given | None = None,
    model: str | os.PathLike[str] | None = None,
    label: str = "index",
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Judged:
    """Judge an index: a file, or a live FAISS index that is searched as it is set now.

    Args:
        index: path, or a FAISS index, which is only read.
        queries: file of vectors, or a Source; without them, rows of the index are asked for their neighbours.
        present: vectors that the present model writes, row i for id i, or for the id that is its name.
        model: file or folder of the present model, to tell whether it is younger than an index file.
        label: what people call a live index.
        only: names of diagnostics, measurements or checks to keep.
        skip: names of those to leave out.

    Raises:
        InputError: if the vectors of the index cannot be had.
        UsageError: if an argument does not fit.

    Example:
        >>> import faiss, numpy
        >>> index = faiss.IndexFlatL2(8)
        >>> index.add(numpy.random.default_rng(0).normal(size=(500, 8)).astype("float32"))
        >>> found = examine_index(index)
        >>> found.snapshot.number("index_recall_ratio"), [verdict.status for verdict in found.verdicts]
        (1.0, ['ok'])
    """
    asked = IndexQuestions(queries, present, model)
    if isinstance(index, str | os.PathLike):
        source = FaissSource.open(Path(index))
        with opened(source.path) as file:
            return _judge(
                file, asked, source.label, source.fingerprint(), source.path, only, skip, Boundary(on_error="raise")
            )
    return judge_live(LiveIndex(index, label), asked, only=only, skip=skip, boundary=Boundary(on_error="raise"))


def judge_live(
    index: LiveIndex, asked: IndexQuestions, *, only: Sequence[str] = (), skip: Sequence[str] = (), boundary: Boundary
) -> Judged:
    """Judge an index in this process as it is now.

    Raises:
        UsageError: if none of the vectors that it is asked with is finite.
    """
    return _judge(index, asked, index.label, "", None, only, skip, boundary)


def judge_index(
    source: FaissSource,
    asked: IndexQuestions,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    boundary: Boundary,
    exhibits: bool = False,
) -> Judged | None:
    """Judge the index of a Source; `None` where nothing of it was asked for, or its rows cannot be asked back.

    Raises:
        InputError: if it cannot be read.
    """
    if source.select is not None or not _asks(only, skip):
        return None
    with opened(source.path) as file:
        fingerprint = asked.fingerprint(source)
        return _judge(file, asked, source.label, fingerprint, source.path, only, skip, boundary, exhibits=exhibits)


def _asks(only: Sequence[str], skip: Sequence[str]) -> bool:
    return bool(DiagnosticSelection.choose(only=only, skip=skip, examines=PLACE).diagnostics)


def _judge(
    index: IndexFile | LiveIndex,
    asked: IndexQuestions,
    label: str,
    fingerprint: str,
    path: Path | None,
    only: Sequence[str],
    skip: Sequence[str],
    boundary: Boundary,
    *,
    exhibits: bool = False,
) -> Judged:
    started = time.perf_counter()
    selection = DiagnosticSelection.choose(only=only, skip=skip, examines=PLACE)
    measured: list[Measurement] = []
    shown: list[Exhibit] = []
    notes: list[str] = []
    refused: UsageError | None = None
    for diagnostic in selection.diagnostics:
        with boundary.guard("diagnostic", diagnostic.name):
            try:
                subject = _subject(diagnostic.name, index, asked, path)
            except InputError as error:
                notes.append(f"{diagnostic.title} was not examined: {error}")
                continue
            except UsageError as error:  # no fault of ours, and no mere note
                refused = refused or error
                continue
            if subject is not None:
                found, evidence = diagnostic().examine(subject)
                measured += found
                shown += evidence
    if refused is not None:
        raise refused
    if asked.queries is None and any(each.name == "index_recall_ratio" for each in measured):
        notes.append("rows of the index were asked for their neighbours; queries of your users may fare worse")
    provenance = Provenance(
        time=time.time(), rows=index.facts.rows, dimension=index.facts.dimension, fingerprint=fingerprint,
        versions=library_versions(), notes=(f"FAISS index {index.facts.kind}", *notes), role=PLACE,
    )  # fmt: skip
    snapshot = Snapshot(Space(label, PLACE), tuple(measured), provenance)
    checks = [check() for check in selection.checks]
    verdicts = tuple(Judge(checks, boundary=boundary).judge(snapshot))
    kept = {exhibit.name for exhibit in shown} if exhibits else set(cited(verdicts))
    told = tuple(each for each in measured if each.name in selection.metrics)
    seconds = time.perf_counter() - started
    evidence = tuple(exhibit for exhibit in shown if exhibit.name in kept)
    return Judged(Snapshot(snapshot.space, told, provenance), verdicts, evidence, seconds)


def _subject(name: str, index: Searched, asked: IndexQuestions, path: Path | None) -> Recall | IndexState | None:
    """Return what a diagnostic examines; `None` where nothing was given that it needs."""
    if name == IndexRecall.name:
        queries = None if asked.queries is None else _queries(asked.queries, index)
        return Recall.from_json(index.recall(queries, k=K, count=QUERIES, seed=SEED))
    if name == IndexFreshness.name and (asked.present is not None or (asked.model is not None and path is not None)):
        found = None if asked.present is None else _freshness(index, asked.present)
        behind = None if asked.model is None or path is None else _written(Path(asked.model)) - path.stat().st_mtime
        return IndexState(found, behind)
    return None


def _source(given: Given) -> Source:
    return given if isinstance(given, Source) else open_source(given)


def _queries(given: Given, index: Searched) -> Matrix:
    """Return a sample of queries. Shape: (Q, D)."""
    source = _source(given)
    rows = _rows(source, QUERIES)[1]
    finite = rows[np.isfinite(rows).all(1)]
    if finite.shape[1] != index.facts.dimension:
        raise InputError(
            f"{source.label} must have {index.facts.dimension} dimensions like {index.label}, got {finite.shape[1]}; "
            "embed queries with the model of the index"
        )
    _check_finite("queries", source, rows, finite)
    return finite


def _check_finite(name: str, source: Source, rows: Matrix, finite: Matrix) -> None:
    """Refuse vectors of which none can be compared: nothing of what was asked would be answered.

    Raises:
        UsageError: whatever else was asked, so that it is no mere note.
    """
    if not len(finite):
        got = f"none among {len(rows):,} that were drawn" if len(rows) else "no rows"
        raise UsageError(f"`{name}` must hold finite vectors, got {got} from {source.label}; embed them anew")


def _freshness(index: Searched, given: Given) -> Freshness:
    """Compare a sample of what the present model writes with the index."""
    source = _source(given)
    numbers, rows = _rows(source, IDS)
    if rows.shape[1] != index.facts.dimension:
        raise InputError(
            f"{source.label} must have {index.facts.dimension} dimensions like {index.label}, got {rows.shape[1]}: the "
            "model is another one; build a new index"
        )
    names = source.names(numbers.tolist())
    try:
        ids = np.array([int(name) for name in names], np.int64)
    except (ValueError, OverflowError):
        raise InputError(
            f"{source.label} must name its rows by ids of {index.label}, got {names[0]!r}; give a column of numbers"
        ) from None
    finite = np.isfinite(rows).all(1)
    _check_finite("present", source, rows, rows[finite])
    found = freshness(index, ids[finite], rows[finite])
    if found.sampled and not found.found:
        raise InputError(
            f"{source.label} must hold ids of {index.label}, got none of them; name its rows by a column of ids"
        )
    return found


def _rows(source: Source, count: int) -> tuple[Any, Matrix]:
    """Return numbers and rows of a seeded sample of a source. Shape: (n,), (n, D)."""
    total = source.rows
    if total is None:
        total = sum(len(batch) for batch in source.batches(source.batch_rows))
    wanted = sample_of(total, count, SEED)
    parts: list[Matrix] = []
    start = 0
    for batch in source.batches(source.batch_rows):
        here = wanted[(wanted >= start) & (wanted < start + len(batch))] - start
        parts.append(batch.rows[here].float().numpy())
        start += len(batch)
    return wanted, np.concatenate(parts) if parts else np.zeros((0, source.dimension or 1), np.float32)


def _written(model: Path) -> float:
    """Return when the newest file of a model was written, in seconds since 1970."""
    files = [file for file in model.rglob("*") if file.is_file()] if model.is_dir() else [model]
    try:
        return max(file.stat().st_mtime for file in files)
    except (OSError, ValueError):
        raise InputError(f"{model} must be a model's file or folder, it is not there; check the path") from None
