"""The audit: sources are read once, measured, judged and delivered."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.core.boundary import Boundary, OnError
from embedwatch.core.check import Check
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.registry import PluginT, registered
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Space
from embedwatch.core.source import Source
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst
from embedwatch.diagnosing import diagnose
from embedwatch.index_health import IndexQuestions, judge_index
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged, cited
from embedwatch.judging import Judge
from embedwatch.questions import Questions
from embedwatch.reading import Progress, silent
from embedwatch.references.beside import Beside, ReferenceOf, beside_of
from embedwatch.selection import NothingLeft, Selection
from embedwatch.sources import open_source
from embedwatch.window import Window

if TYPE_CHECKING:
    from embedwatch.sources.faiss import FaissSource

__all__ = ["AUDIT_SCHEMA", "Audit", "Judged", "audit"]

OnRows = Callable[[Source, Any], None]
AUDIT_SCHEMA = 1
"""Version of the JSON that an Audit writes."""
CONSOLE = "console"
"""Name of the sink that people read as it comes."""
ONLY_TOKENS = "only the token table is judged; --text FILE judges the model's vectors of texts too"


@dataclass(frozen=True)
class Audit:
    """What an audit found, Space by Space."""

    spaces: tuple[Judged, ...]
    errors: tuple[tuple[str, str, int], ...] = ()
    """Exceptions of ours that were counted: (stage, name, number)."""

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts of all spaces."""
        return [verdict for judged in self.spaces for verdict in judged.verdicts]

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        judged = [verdict.status for verdict in self.verdicts if verdict.status != "unknown"]
        return worst(judged)

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": AUDIT_SCHEMA,
            "status": self.status,
            "counts": self.counts(),
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "spaces": [judged.to_json() for judged in self.spaces],
        }


def audit(
    *inputs: str | os.PathLike[str] | Source,
    text: str | os.PathLike[str] | None = None,
    labels: str | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    prompts: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
    words: str | os.PathLike[str] | None = None,
    length: int | None = None,
    deep: bool = False,
    queries: str | os.PathLike[str] | None = None,
    present: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    sinks: Sequence[Sink] = (),
    exhibits: bool = False,
    reference_of: ReferenceOf | None = None,
    on_rows: OnRows | None = None,
    progress: Progress | None = None,
    on_error: OnError = "count",
) -> Audit:
    """Measure and judge files of vectors, models with their token tables, and texts encoded by a model.

    A model is examined by every diagnostic that needs its weights alone; by those that run it where texts or prompts
    are given, or `deep` is set. With both texts and `deep` its attention on them is judged as well, layer by layer.

    Args:
        inputs: paths of files or model folders, names of cached models, or Sources.
        text: a file with one text a line, encoded by the model among the inputs.
        labels: a file with one group a row, or the column of the source that holds it.
        kind: kind of the inputs, where a path is ambiguous.
        select: array, tensor or column to read, where a file holds several.
        pooling: how token vectors become one (`mean`, `cls`, `last`, `max`); the model's own by default.
        prefix: put before each text; the model's own by default.
        prompts: a file with one beginning a line, that the model goes on from.
        corpus: a file of texts, whose tokens are counted.
        words: a file of groups of words, or the name of those that come with the package.
        length: number of tokens that the model is to be used with; what it was trained with by default.
        deep: run the model even where no texts are given.
        queries: file of query vectors, with which an index is asked; rows of the index by default.
        present: file of what the present model writes: row i for id i of an index, or for the id that is its name.
        only: names of statistics, diagnostics, measurements or checks to keep.
        skip: names of statistics, diagnostics, measurements or checks to leave out.
        sinks: where each judged Space goes. They are not closed.
        exhibits: make all exhibits, not only those that a verdict cites.
        reference_of: returns what the rows of a Space are compared with, or `None`.
        on_rows: called with each Source and each batch that was read of it: for who keeps rows for a picture.
        progress: shows rows done.
        on_error: what happens to exceptions of a Statistic, Check or Sink.

    Raises:
        InputError: if an input cannot be read as what it claims to be.
        UsageError: if an argument does not fit.

    Example:
        >>> import numpy, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "vectors.npy")
        ...     numpy.save(path, numpy.random.default_rng(0).normal(size=(500, 8)).astype("float32"))
        ...     audit(path).status
        'ok'
    """
    if not inputs:
        raise UsageError("`inputs` must name at least one file, model or Source, got none; give a path")
    boundary = Boundary(on_error=on_error)
    _check_options(text=text, labels=labels, pooling=pooling, prefix=prefix)
    _check_sinks(sinks)
    options = _Options(text, labels, kind, select, pooling, prefix)
    opened = [pair for given in inputs for pair in _open(given, options)]
    work = _Work(tuple(only), tuple(skip), tuple(sinks), exhibits, progress or silent, boundary, reference_of, on_rows)
    if any(labelled for _, labelled in opened):  # a table of tokens has nothing to say where only groups are asked for
        opened = [(source, labelled) for source, labelled in opened if labelled or work.works_unlabelled()]
    asked = Questions(text, prompts, corpus, words, length, deep)
    asked.check([source for source, _ in opened])
    of_index = IndexQuestions(queries, present)
    of_index.check([source for source, _ in opened])
    judged = work.judge_all(opened, asked, of_index)
    errors = tuple((stage, name, count) for (stage, name), count in boundary.errors.items())
    return Audit(tuple(judged), errors)


@dataclass(frozen=True)
class _Options:
    """How inputs are opened."""

    text: str | os.PathLike[str] | None
    labels: str | None
    kind: str | None
    select: str | None
    pooling: str | None
    prefix: str | None

    @property
    def labels_file(self) -> Path | None:
        """The labels where they are a file, not a column."""
        return Path(self.labels) if self.labels is not None and Path(self.labels).is_file() else None


def _check_options(*, text: object, labels: str | None, pooling: object, prefix: object) -> None:
    if text is None:
        for name, value in (("pooling", pooling), ("prefix", prefix)):
            if value is not None:
                raise UsageError(f"`{name}` must come with `text`, got {value!r} alone; name a file of texts to encode")
    if labels is not None and not Path(labels).exists() and Path(labels).suffix:
        raise InputError(f"{labels} does not exist; give a file with one group a line, or the name of a column")


def _check_sinks(sinks: object) -> None:
    """Refuse what is no list of sinks that are open: they are not ours to close."""
    listed = list(sinks) if isinstance(sinks, (list, tuple)) else [sinks]
    odd = [sink for sink in listed if not isinstance(sink, Sink)]
    if odd:
        raise UsageError(f"`sinks` must be a list of Sinks, got {odd[0]!r}; open one with embedwatch.sinks.open_sink")


def _open(given: str | os.PathLike[str] | Source, options: _Options) -> Iterator[tuple[Source, bool]]:
    """Yield the Sources that one input stands for, and whether their rows have groups. A model with texts is two."""
    from embedwatch.sources.labelled import LabelledSource
    from embedwatch.sources.subject import EncodedTexts, TokenTable

    file = options.labels_file
    source = given
    if not isinstance(source, Source):
        column = options.labels if file is None else None
        source = open_source(source, options.kind, select=options.select, labels=column)
    if options.text is None:
        if isinstance(source, TokenTable):
            source.notes = (*source.notes, ONLY_TOKENS)
        yield source if file is None else LabelledSource(source, file), options.labels is not None
        return
    if not isinstance(source, TokenTable):
        raise UsageError(f"`text` must come with a model that encodes it, got {source.label}; name the model's folder")
    if options.labels is not None and file is None:
        raise UsageError(f"`labels` must be a file with one group a text, got {options.labels!r}; write them to a file")
    yield source, False
    ways = {"pooling": options.pooling, "prefix": options.prefix}
    yield EncodedTexts(source.subject, Path(options.text), labels=file, **ways), file is not None


@dataclass(frozen=True)
class _Work:
    """What is done with each Source of one audit."""

    only: tuple[str, ...]
    skip: tuple[str, ...]
    sinks: tuple[Sink, ...]
    exhibits: bool
    progress: Progress
    boundary: Boundary
    reference_of: ReferenceOf | None = None
    on_rows: OnRows | None = None

    def works_unlabelled(self) -> bool:
        """Return whether anything that was asked for can be measured on rows without labels."""
        try:
            Selection.choose(only=self.only, skip=self.skip)
        except UsageError:
            return False
        return True

    def judge_all(
        self, opened: Sequence[tuple[Source, bool]], asked: Questions, of_index: IndexQuestions
    ) -> list[Judged]:
        """Judge each Source, each model after the rows of its table, and each index after its vectors."""
        from embedwatch.sources.faiss import FaissSource
        from embedwatch.sources.subject import TokenTable

        found: list[Judged] = []
        nothing: NothingLeft | None = None
        for source, labelled in opened:
            try:
                found.append(self.judge(source, labelled=labelled))
            except NothingLeft as error:  # of its rows: something of the model may have been named
                nothing = error
            if isinstance(source, TokenTable):
                inquiry = asked.inquiry(source.subject)
                found += self._diagnosed(inquiry)
                if inquiry.deep and inquiry.texts:
                    found += self._attention(inquiry)
            elif asked.words is not None and not labelled:
                found += self._of_words(source, asked.words)
            if isinstance(source, FaissSource):
                found += self._of_index(source, of_index)
        if nothing is not None and not found:
            raise nothing
        return found

    def _diagnosed(self, inquiry: Inquiry) -> list[Judged]:
        found = diagnose(
            inquiry,
            only=self.only,
            skip=self.skip,
            exhibits=self.exhibits,
            boundary=self.boundary,
            progress=self.progress,
        )
        return self._delivered(found)

    def _attention(self, inquiry: Inquiry) -> list[Judged]:
        """Judge the attention of a model on the texts. Sinks for people get the layers that are not sound."""
        from embedwatch.attention_study import AttentionStudy, study_attention, unexamined

        study: AttentionStudy | None = None
        with self.boundary.guard("diagnostic", "attention"):
            try:
                study = study_attention(
                    inquiry.subject,
                    inquiry.texts,
                    length=inquiry.length,
                    only=self.only,
                    skip=self.skip,
                    seed=inquiry.seed,
                    boundary=self.boundary,
                    progress=self.progress,
                )
            except InputError as error:
                return self._delivered([unexamined(inquiry.subject, error)])
        if study is None:
            return []
        self._delivered(study.grave, [sink for sink in self.sinks if sink.name == CONSOLE])
        self._delivered(study.every, [sink for sink in self.sinks if sink.name != CONSOLE])
        return study.every

    def _of_words(self, source: Source, words: Any) -> list[Judged]:
        from embedwatch.judging_words import judge_words
        from embedwatch.sources.subject import EncodedTexts

        if isinstance(source, EncodedTexts):  # the model behind them was asked
            return []
        judged = judge_words(source, words, boundary=self.boundary, skip=self.skip, exhibits=self.exhibits)
        return self._delivered([judged])

    def _of_index(self, source: FaissSource, asked: IndexQuestions) -> list[Judged]:
        judged = judge_index(
            source, asked, only=self.only, skip=self.skip, boundary=self.boundary, exhibits=self.exhibits
        )
        return [] if judged is None else self._delivered([judged])

    def _delivered(self, found: list[Judged], sinks: Sequence[Sink] | None = None) -> list[Judged]:
        for judged in found:
            for sink in self.sinks if sinks is None else sinks:
                with self.boundary.guard("sink", sink.name):
                    sink.write(judged.snapshot, judged.verdicts, judged.exhibits)
        return found

    def judge(self, source: Source, *, labelled: bool) -> Judged:
        """Read, measure, judge and deliver one Source."""
        started = time.perf_counter()
        selection = Selection.choose(only=self.only, skip=self.skip, labelled=labelled)
        space = Space(source.label, source.place)
        beside = beside_of(self.reference_of, space, source.role, self.skip)
        window = self._read(source, selection, beside)
        snapshot = window.snapshot(
            space,
            fingerprint=source.fingerprint(),
            coverage={"rows_expected": window.rows if source.rows is None else source.rows, "rows_read": window.rows},
            notes=source.notes,
            role=source.role,
        )
        snapshot, why = (snapshot, {}) if beside is None else beside.completed(snapshot)
        compared = set(beside.metrics) if beside is not None else set()
        checks = [check for check in registered(Check).values() if compared.intersection(check.reads)]
        asked = [*selection.checks, *(check for check in checks if check.name not in self.skip)]
        verdicts = Judge(list(self._made("check", asked)), boundary=self.boundary).judge(snapshot, why=why)
        exhibits = tuple(exhibit.with_names(source.names) for exhibit in self._exhibits(window, verdicts))
        shown = replace(snapshot, measurements=tuple(m for m in snapshot if m.name in selection.metrics | compared))
        for sink in self.sinks:
            with self.boundary.guard("sink", sink.name):
                sink.write(shown, verdicts, exhibits)
        return Judged(shown, tuple(verdicts), exhibits, time.perf_counter() - started)

    def _made(self, stage: str, classes: Sequence[type[PluginT]]) -> Iterator[PluginT]:
        """Yield an instance of each class; one that cannot be made is counted and left out."""
        for cls in classes:
            with self.boundary.guard(stage, cls.name):
                yield cls()

    def _read(self, source: Source, selection: Selection, beside: Beside | None) -> Window:
        compared = [] if beside is None else beside.statistics()
        window = Window([*self._made("statistic", selection.statistics), *compared], boundary=self.boundary)
        with self.progress(f"{source.label}/{source.place}", source.rows) as advance:
            for batch in source.batches(source.batch_rows):
                if beside is not None and not beside.fits(batch.dimension):
                    beside.leave(window)
                window.update(batch)
                if self.on_rows is not None:
                    with self.boundary.guard("rows", source.label):
                        self.on_rows(source, batch)
                advance(window.rows)
        window.close(time.time())
        return window

    def _exhibits(self, window: Window, verdicts: Sequence[Verdict]) -> list[Exhibit]:
        """Return all exhibits, or those that a verdict cites which is not ok."""
        if self.exhibits:
            return window.exhibits()
        names = cited(verdicts)
        return window.exhibits(names) if names else []
