"""Courses: all Spaces of one Monitor, on the evaluator's side: rows in, Snapshots and verdicts out to the sinks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import TrainingStep, VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.measurement import Measurement
from embedwatch.core.registry import registered
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import ROLES, Space
from embedwatch.course import Course, Judgement, Names
from embedwatch.diagnostics.embedding_scale import EmbeddingScale, InputParts
from embedwatch.judging import Judge
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.observer import Seen
from embedwatch.observe.places import Place
from embedwatch.observe.tables import TableState
from embedwatch.selection import Selection
from embedwatch.self_report import SelfReport, Totals

__all__ = ["Courses"]

TABLE, TRAINING, WATCHING = "token_table", "training", "monitor"
"""Places of a Monitor that are no modules."""
KINDS = {"tokens": "tokens", "training": "steps"}
"""Role of a place to the kind of batch that its statistics are fed; else vectors."""
PARTS = ("token", "position", "embedding")
"""Roles of what is summed before the first layer, and of the sum."""
RETRY = 10
"""A sink that was switched off is tried again every so many windows: a disk may have room again."""

Steps = Sequence[tuple[int, Mapping[str, Any]]]


class Courses:
    """All Spaces of one Monitor.

    Args:
        model: label of the model.
        attachment: what is watched.
        boundary: where exceptions of ours end.
        only, skip: what to measure and ask.
        sinks: where windows go, and whether each is closed at the end.
        tokenizer: names tokens.
    """

    def __init__(
        self,
        model: str,
        attachment: Attachment,
        boundary: Boundary,
        *,
        only: Sequence[str],
        skip: Sequence[str],
        sinks: Sequence[tuple[Sink, bool]],
        tokenizer: Any = None,
    ) -> None:
        self._model, self._attachment, self._boundary = model, attachment, boundary
        self._sinks = list(sinks)
        kinds = ("vectors", *KINDS.values())
        self._selections = {kind: Selection.live(kind, only=only, skip=skip) for kind in kinds}
        checks = [check for name, check in registered(Check).items() if name not in skip]
        self._judge = Judge([check() for check in checks], boundary=boundary)
        self._fingerprint = _fingerprint(attachment)
        self._names = _token_names(tokenizer)
        self._sums: dict[str, Tensor] = {}
        self._windows = 0
        self._courses: dict[str, Course] = {}
        for place, role in self._known():
            self._course(place, role)
        self._own = SelfReport(self._course(WATCHING, "watching"), boundary, self._may_fail(checks))

    def _known(self) -> Iterator[tuple[str, str]]:
        """Yield the Spaces that are known from the start, with their roles."""
        for observer in self._attachment.observers:
            if not observer.place.optional:
                yield observer.place.name, observer.place.role
        table = self._attachment.table
        if table is not None:
            yield TABLE, "table"
            yield table.name, "tokens"
        yield TRAINING, "training"

    def _may_fail(self, checks: Sequence[type[Check]]) -> Iterator[tuple[str, str]]:
        for selection in self._selections.values():
            for statistic in selection.statistics:
                yield from (("statistic", statistic.name), ("compute", statistic.name))
        yield from (("check", check.name) for check in checks)
        yield from (("sink", sink.name) for sink, _ in self._sinks)

    def _course(self, place: str, role: str) -> Course:
        if place not in self._courses:
            statistics = self._selections[KINDS.get(role, "vectors")].made(self._boundary)
            names = self._names if role in ("tokens", "table") else None
            space = Space(self._model, place)
            self._courses[place] = Course(space, role, statistics, self._judge, self._boundary, names)
        return self._courses[place]

    @property
    def dimension(self) -> int:
        """D of the embedding table."""
        table = self._attachment.table
        return 1 if table is None else table.module.embedding_dim

    @property
    def chance(self) -> float | None:
        """The loss of a model that knows nothing: ln V."""
        table = self._attachment.table
        return None if table is None else math.log(len(table.counts))

    def judgements(self) -> dict[str, Judgement]:
        """Return the last judgement of each place."""
        return {place: course.last for place, course in list(self._courses.items()) if course.last is not None}

    def memory(self) -> int:
        """Return the most bytes that statistics hold: the open window of each place, and the one that is closing."""
        held = [
            sum(statistic.memory(self.dimension) for statistic in course.window.statistics.values())
            for course in self._courses.values()
        ]
        return sum(held) + max(held, default=0)

    def expect(self) -> None:
        """Tell the sinks what will come."""
        courses = [course for place, course in self._courses.items() if place != WATCHING]
        snapshots = [*(course.expected() for course in courses), self._own.expected(self._attachment.expected)]
        for sink, _ in self._sinks:
            with self._boundary.guard("sink", sink.name):
                sink.expect(snapshots)

    def take(self, place: Place, seen: Sequence[Seen]) -> None:
        """Add rows of a place, brought to the CPU, padding left out; each call of its module is a Space of its own."""
        calls: dict[int, list[VectorBatch]] = {}
        for look in seen:
            if look.event is not None:
                look.event.synchronize()
            rows, numbers, valid = look.sample
            batch = VectorBatch(rows.cpu(), numbers.cpu(), source=place.name)
            calls.setdefault(look.call, []).append(batch if valid is None else batch.take(valid.cpu()))
        for call, batches in calls.items():
            joined = VectorBatch.concat(batches)
            if place.role in PARTS:
                self._sums[place.role] = joined.rows
            if place.role in ROLES:
                self._course(place.name if call == 0 else f"{place.name}#{call}", place.role).update(joined)

    def examine(self, batch: VectorBatch, rows: int, provenance: Mapping[str, Any]) -> None:
        """Judge the embedding table, which has so many rows, of which these were taken."""
        course = self._courses[TABLE]
        course.update(batch)
        notes = [] if len(batch) == rows else [f"{len(batch):,} of {rows:,} rows were examined, chosen by hash."]
        self._deliver(course.close(**provenance, fingerprint=self._fingerprint, notes=notes))

    def close_windows(
        self,
        state: TableState | None,
        decay: float | None,
        steps: Steps,
        totals: Totals,
        provenance: Mapping[str, Any],
    ) -> None:
        """Close, measure, judge and deliver every open window."""
        self._windows += 1
        table = self._attachment.table
        if state is not None and table is not None:
            with self._boundary.guard("window", table.name):
                self._courses[table.name].update(state.batch())
        for step, scalars in steps:
            self._courses[TRAINING].update(TrainingStep(step, dict(self._numbers(scalars))))
        for place, course in list(self._courses.items()):
            if place not in (TABLE, WATCHING):
                more = self._embedding(state, decay) if course.role == "tokens" else ()
                with self._boundary.guard("window", place):
                    self._deliver(course.close(**provenance, fingerprint=self._fingerprint, more=more))
        self._deliver(self._own.judge(totals, {**provenance, "fingerprint": self._fingerprint}))

    def _numbers(self, scalars: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield the scalars of a step as numbers; what is none is counted and left out."""
        for name, value in scalars.items():
            with self._boundary.guard("scalar", name):
                yield name, float(value)

    def _embedding(self, state: TableState | None, decay: float | None) -> Sequence[Measurement]:
        """Measure what is summed before the first layer, and whether the table decays."""
        parts = InputParts(
            self._sums.get("token", torch.zeros(0, self.dimension)),
            self._sums.get("position"),
            decay,
            entering=self._sums.get("embedding"),
            table=None if state is None else state.scale(self.dimension),
        )
        found: list[Measurement] = []
        with self._boundary.guard("diagnostic", EmbeddingScale.name):
            found += EmbeddingScale().examine(parts)[0]
        return found

    def _deliver(self, judgement: Judgement | None) -> None:
        if judgement is None:
            return
        for sink, _ in self._sinks:
            if not self._boundary.is_off("sink", sink.name) or self._windows % RETRY == 0:
                with self._boundary.guard("sink", sink.name):
                    if sink.wants_windows and judgement.window is not None:
                        sink.write_window(judgement.window, judgement.snapshot)
                    else:
                        sink.write(judgement.snapshot, judgement.verdicts, judgement.exhibits)
                    self._boundary.recover("sink", sink.name)

    def close(self) -> None:
        """Close the sinks that are ours."""
        for sink, ours in self._sinks:
            if ours:
                with self._boundary.guard("sink", sink.name):
                    sink.close()


def _fingerprint(attachment: Attachment) -> str:
    """Return a short hash of what the model is made of: classes, names and shapes, not weights."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(type(attachment.model).__qualname__.encode())
    for name, parameter in attachment.model.named_parameters():
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
    return digest.hexdigest()


def _token_names(tokenizer: Any) -> Names | None:
    """Return what names tokens, by a tokenizer of transformers or of tokenizers."""
    convert: Callable[[int], Any] | None = getattr(tokenizer, "convert_ids_to_tokens", None)
    convert = convert or getattr(tokenizer, "id_to_token", None)
    if convert is None:
        return None
    return lambda numbers: [str(convert(number) or number) for number in numbers]
