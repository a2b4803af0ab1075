"""Courses: all Spaces of one Monitor, on the evaluator's side: rows in, Snapshots and verdicts out to the sinks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embedwatch.batch import TrainingStep, VectorBatch
from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.course import Course, Judgement, Names
from embedwatch.diagnostics.watching import Watched, Watching
from embedwatch.judging import Judge
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.places import Place
from embedwatch.observe.tables import TableState
from embedwatch.selection import Selection

__all__ = ["Courses"]

TABLE, TRAINING, WATCHING = "token_table", "training", "monitor"
"""Places of a Monitor that are no modules."""


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
        self._selections = {kind: Selection.live(kind, only=only, skip=skip) for kind in ("vectors", "tokens", "steps")}
        self._judge = Judge(
            [check() for name, check in registered(Check).items() if name not in skip], boundary=boundary
        )
        self._sinks = list(sinks)
        table = attachment.table
        self.dimension = 1 if table is None else table.module.embedding_dim
        self.chance = None if table is None else math.log(len(table.counts))
        """The loss of a model that knows nothing: ln V."""
        self._fingerprint = _fingerprint(attachment)
        self._names = _token_names(tokenizer)
        self._known_errors: dict[tuple[str, str], int] = {}
        self._known_totals = {"seconds": 0.0, "dropped": 0, "reattached": 0}
        self._courses: dict[str, Course] = {}
        for observer in attachment.observers:
            if not observer.place.optional:
                self._course(observer.place.name, observer.place.role)
        if table is not None:
            self._course(TABLE, "table", self._names)
            self._course(table.name, "tokens", self._names, kind="tokens")

    def _course(self, place: str, role: str, names: Names | None = None, *, kind: str = "vectors") -> Course:
        if place not in self._courses:
            selection = self._selections[kind]
            self._courses[place] = Course(
                Space(self._model, place), role, selection.made(self._boundary), self._judge, self._boundary, names
            )
        return self._courses[place]

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
        snapshots = [course.expected() for course in self._courses.values()]
        for sink, _ in self._sinks:
            with self._boundary.guard("sink", sink.name):
                sink.expect(snapshots)

    def update(self, place: Place, call: int, batch: VectorBatch) -> None:
        """Add rows of a place."""
        name = place.name if call == 0 else f"{place.name}#{call}"
        self._course(name, place.role).update(batch)

    def examine(self, batch: VectorBatch, state: TableState, provenance: Mapping[str, Any]) -> None:
        """Judge the embedding table in full."""
        course = self._courses[TABLE]
        course.update(batch)
        whole = len(state.norms)
        notes = [] if len(batch) == whole else [f"{len(batch):,} of {whole:,} rows were examined, chosen by hash."]
        self._deliver(course.close(**provenance, fingerprint=self._fingerprint, notes=notes))

    def close_windows(
        self,
        state: TableState | None,
        decay: float | None,
        steps: Sequence[tuple[int, Mapping[str, Any]]],
        provenance: Mapping[str, Any],
        watched: Mapping[str, Any],
    ) -> None:
        """Close, measure, judge and deliver every open window."""
        table = self._attachment.table
        if state is not None and table is not None:
            self._courses[table.name].update(state.batch())
        for step, scalars in steps:
            course = self._course(TRAINING, "training", kind="steps")
            course.update(TrainingStep(step, {name: float(value) for name, value in scalars.items()}))
        for place, course in list(self._courses.items()):
            if place != TABLE:
                self._deliver(course.close(**provenance, fingerprint=self._fingerprint))
        self._deliver(self._watching(provenance, watched))

    def _watching(self, provenance: Mapping[str, Any], watched: Mapping[str, Any]) -> Judgement:
        """Judge how watching itself goes."""
        errors = self._boundary.errors
        since = {key: count - self._known_errors.get(key, 0) for key, count in errors.items()}
        self._known_errors = errors
        totals = {name: watched[name] for name in self._known_totals}
        fresh = {name: total - self._known_totals[name] for name, total in totals.items()}
        self._known_totals = totals
        blind: Mapping[str, str] = watched["blind"]
        report = Watched(
            self._attachment.expected, blind, watched["overhead"], every=watched["every"], errors=since, **fresh
        )
        measurements, exhibits = Watching().examine(report)
        causes: dict[str, list[str]] = {}
        for place, cause in blind.items():
            causes.setdefault(cause, []).append(place)
        course = self._course(WATCHING, "watching")
        snapshot = Snapshot(
            course.space,
            tuple(measurements),
            Provenance(
                time=provenance["ended"],
                rows=report.expected,
                step=provenance["step"],
                coverage=provenance["coverage"],
                fingerprint=self._fingerprint,
                notes=tuple(f"{_listed(places)}: {cause}." for cause, places in causes.items()),
                role="watching",
            ),
        )
        return course.publish(snapshot, lambda names: exhibits)

    def _deliver(self, judgement: Judgement | None) -> None:
        if judgement is None:
            return
        for sink, _ in self._sinks:
            if not self._boundary.is_off("sink", sink.name):
                with self._boundary.guard("sink", sink.name):
                    sink.write(judgement.snapshot, judgement.verdicts, judgement.exhibits)
                    self._boundary.recover("sink", sink.name)

    def close(self) -> None:
        """Close the sinks that are ours."""
        for sink, ours in self._sinks:
            if ours:
                with self._boundary.guard("sink", sink.name):
                    sink.close()


def _listed(places: Sequence[str], most: int = 3) -> str:
    more = f" and {len(places) - most} more" if len(places) > most else ""
    return ", ".join(places[:most]) + more


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
