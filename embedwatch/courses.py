"""Courses: all Spaces of one Monitor, on the evaluator's side: rows in, Snapshots and verdicts out to the sinks."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from embedwatch.align.probing import Bridge
from embedwatch.batch import TrainingStep, VectorBatch
from embedwatch.calibration import USUAL_BUDGET
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.measurement import Measurement
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import ROLES, Space
from embedwatch.course import Course, Judgement, Names
from embedwatch.course_maker import CourseMaker
from embedwatch.diagnoses import Diagnoses
from embedwatch.diagnostics.embedding_scale import EmbeddingScale, InputParts
from embedwatch.diagnostics.watching import Watched
from embedwatch.joining import Joining
from embedwatch.judged import Judged
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.attention.site import AttentionSeen
from embedwatch.observe.observer import Seen
from embedwatch.observe.places import Place
from embedwatch.observe.tables import TableState
from embedwatch.references.gathering import Gathering
from embedwatch.references.reference import Reference
from embedwatch.self_report import SelfReport
from embedwatch.sinks import open_sinks

__all__ = ["Courses"]

log = logging.getLogger(__name__)

TABLE, TRAINING, WATCHING = "token_table", "training", "monitor"
"""Places of a Monitor that are no modules."""
PARTS = ("token", "position", "embedding")
"""Roles of what is summed before the first layer, and of the sum."""
DEFECTS = ("nonfinite_rows", "nonfinite_losses_total")
"""Measurements that say what was not finite in a window."""

GATHERED = ("token", "embedding", "hidden", "pooled", "vectors")
"""Roles of places whose rows come as a stream of vectors."""

Steps = Sequence[tuple[int, Mapping[str, Any]]]


class Courses:
    """All Spaces of one Monitor.

    Args:
        model: label of the model.
        attachment: what is watched.
        boundary: where exceptions of ours end.
        only, skip: what to measure and ask.
        tokenizer: names tokens.
        joining: with the other ranks of a training; `None` where there are none.
        references: by place, what its rows are compared with.
        alarms: false alarms that are accepted over time.
        bridge: over which its vectors go.
    """

    def __init__(
        self,
        model: str,
        attachment: Attachment,
        boundary: Boundary,
        *,
        only: Sequence[str],
        skip: Sequence[str],
        tokenizer: Any = None,
        joining: Joining | None = None,
        references: Mapping[str, Reference] | None = None,
        alarms: str = USUAL_BUDGET,
        bridge: Bridge | None = None,
    ) -> None:
        self._model, self._attachment, self._boundary = model, attachment, boundary
        self._joining = joining
        self._sinks: list[tuple[Sink, bool]] = []
        known = dict(references or {})
        self._maker = CourseMaker(
            only=only,
            skip=skip,
            reference_of=lambda space: known.get(space.place),
            alarms=alarms,
            compared=lambda: sum(course.beside() is not None for course in self._courses.values()),
        )
        self._judge = self._maker.judge(boundary)
        self._diagnoses = Diagnoses(model, tokenizer, self._judge, boundary, only=only, skip=skip, bridge=bridge)
        self.urgent = False
        """Whether something was seen that should not wait for the end of the window: the first rows that are not
        finite at a place, or the first such loss."""
        self._alarmed: set[str] = set()
        self._fingerprint = _fingerprint(attachment)
        self._names = _token_names(tokenizer)
        self._sums: dict[str, Tensor] = {}
        self._windows = 0
        self._courses: dict[str, Course] = {}
        for place, role in self._known():
            self._course(place, role)
        self._own = SelfReport(self._course(WATCHING, "watching"), boundary)

    def open(self, sinks: Iterable[Sink | str]) -> None:
        """Open the sinks, the last of what can fail; those that are given as texts are closed at the end.

        Raises:
            UsageError: if one is none; what was opened before is closed.
        """
        try:
            for sink in sinks:
                self._sinks += open_sinks([sink])
        except BaseException:
            self.close()
            raise
        self._own.parts([*self._maker.parts(), *(("sink", sink.name) for sink, _ in self._sinks)])

    def check_references(self, references: Mapping[str, Reference]) -> None:
        """Refuse references of another model, and such as no place is compared with.

        Raises:
            UsageError: naming the first that does not fit.
        """
        for place, reference in references.items():
            made_of = reference.origin.model
            if made_of and made_of != self._fingerprint:
                raise UsageError(
                    f"`reference` of {place} must be of this model, {self._fingerprint}, got one of {made_of}; "
                    "make it anew with `monitor.save_reference`"
                )
        known = [name for name, course in self._courses.items() if course.role in (*GATHERED, "table")]
        strange = [place for place in references if place not in known]
        if strange and len(strange) == len(references):
            raise UsageError(
                f"`reference` must be of a place that is watched, got {strange[0]}; give it by place, as in "
                f"{{{known[0]!r}: reference}}, or watch that place"
                if known
                else "`reference` has no place here"
            )
        for place in strange:
            log.warning("embedwatch: %s: no place %s is watched; its reference is not used", self._model, place)

    def _known(self) -> Iterator[tuple[str, str]]:
        """Yield the Spaces that are known from the start, with their roles."""
        for observer in self._attachment.observers:
            if not observer.place.optional:
                yield observer.place.name, observer.place.role
        for site in self._attachment.attention.due():
            yield site.name, site.place.role
        for table in self._attachment.tables:
            yield self._examined(table.name), "table"
            yield table.name, "tokens"
        yield TRAINING, "training"

    def _examined(self, name: str) -> str:
        """Return the place of a table that is examined in full: `token_table`, that of the first."""
        first = self._attachment.tables[0].name == name
        return TABLE if first else f"{TABLE}.{name.removesuffix('.weight')}"

    def _course(self, place: str, role: str, segment: str = "all") -> Course:
        name = place if segment == "all" else f"{place}/{segment}"
        if name not in self._courses:
            names = self._names if role in ("tokens", "table") else None
            space = Space(self._model, place, segment)
            self._courses[name] = self._maker.make(space, role, self._boundary, judge=self._judge, names=names)
        return self._courses[name]

    @property
    def dimension(self) -> int:
        """D of the embedding table."""
        return max((table.dimension for table in self._attachment.tables), default=1)

    @property
    def chance(self) -> float | None:
        """The loss of a model that knows nothing: ln V."""
        tables = self._attachment.tables
        rows = len(tables[0].counts) if tables else 0
        return math.log(rows) if rows > 1 else None

    def gather(self, folder: Path, rows: int) -> None:
        """Make references of the next rows of each place that has vectors, and write them below a folder."""
        for course in self._courses.values():
            if course.role in GATHERED:
                course.gathering = Gathering(course.space, course.role, folder, rows, model=self._fingerprint)

    def gathered(self) -> dict[str, int]:
        """Return how many rows are still to come for the reference of each place."""
        courses = list(self._courses.items())
        return {name: course.gathering.missing for name, course in courses if course.gathering is not None}

    def judgements(self) -> dict[str, Judgement]:
        """Return the last judgement of each place, of rows and of the model itself."""
        lasts = {place: course.last for place, course in list(self._courses.items()) if course.last is not None}
        return {**lasts, **self._diagnoses.judgements}

    def memory(self) -> int:
        """Return the most bytes that statistics hold: the open window of each place, and the one that is closing."""
        held = [
            sum(statistic.memory(self.dimension) for statistic in course.window.statistics.values())
            for course in list(self._courses.values())
        ]
        return sum(held) + max(held, default=0) + self._diagnoses.memory()

    def expect(self) -> None:
        """Tell the sinks what will come."""
        courses = [course for place, course in self._courses.items() if place != WATCHING]
        snapshots = [*(course.expected() for course in courses), self._own.expected(self._attachment.expected)]
        snapshots += self._diagnoses.expected()
        for sink, _ in self._sinks:
            with self._boundary.guard("sink", sink.name):
                sink.expect(snapshots)

    def take(self, place: Place, seen: Sequence[Seen]) -> None:
        """Add rows of a place, brought to the CPU, padding left out; each call of its module is a Space of its own."""
        calls: dict[int, list[VectorBatch]] = {}
        for look in seen:
            if look.event is not None:
                look.event.synchronize()
            rows, numbers, valid, inputs = look.sample
            inputs = None if inputs is None else inputs.cpu()
            batch = VectorBatch(rows.cpu(), numbers.cpu(), source=place.name, inputs=inputs)
            calls.setdefault(look.call, []).append(batch if valid is None else batch.take(valid.cpu()))
        for call, batches in calls.items():
            name = place.name if call == 0 else f"{place.name}#{call}"
            for joined in _joined(batches):
                self._alarm(name, sound=bool(joined.finite.all()))
                if place.role in PARTS:
                    self._sums[place.role] = joined.rows
                if place.role in ROLES:
                    self._course(name, place.role).update(joined)

    def take_attention(self, place: Place, seen: Sequence[AttentionSeen]) -> None:
        """Add sampled rows of attention; each call of its module, and each segment, is a Space of its own."""
        for look in seen:
            if look.event is not None:
                look.event.synchronize()
            batch = look.rows.finished()
            if len(batch):
                name = place.name if look.call == 0 else f"{place.name}#{look.call}"
                self._course(name, place.role, batch.segment).update(batch)

    def _alarm(self, name: str, *, sound: bool) -> None:
        """Do not let what is not finite wait, the first time; it may come again after a sound window."""
        if not sound and name not in self._alarmed:
            self._alarmed.add(name)
            self.urgent = True

    def take_steps(self, steps: Steps) -> None:
        """Add training steps."""
        for step, scalars in steps:
            numbers = dict(self._numbers(scalars))
            self._alarm(TRAINING, sound=math.isfinite(numbers.get("loss", 0.0)))
            if self._joining is not None:
                self._joining.steps.add(step, numbers)
                continue
            with self._boundary.guard("step", "record", recovers=True):
                self._courses[TRAINING].update(TrainingStep(step, numbers))

    def examine(self, name: str, batch: VectorBatch, rows: int, provenance: Mapping[str, Any]) -> None:
        """Judge an embedding table, which has so many rows, of which these were taken."""
        course = self._courses[self._examined(name)]
        if self._joining is not None and any(table.name == name and table.sharded for table in self._attachment.tables):
            course.update(batch)  # the next window that closes on all ranks has the rest of the table
            return
        if self._joining is not None and not self._joining.ranks.first:
            return  # a copy of what the first rank examines
        course.update(batch)
        notes = [] if len(batch) == rows else [f"{len(batch):,} of {rows:,} rows were examined, chosen by hash."]
        self._deliver(course.close(**provenance, fingerprint=self._fingerprint, notes=notes))

    def diagnose(self, *, step: int | None, **asked: Any) -> list[Judged]:
        """Examine the model itself, as it is now, and deliver what is found; see `Inquiry` for what may be asked."""
        if self._joining is not None and not self._joining.ranks.first:
            return []
        return self._diagnoses.run(self._attachment.model, self._deliver, step=step, **asked)

    def embedded(self, *, start: bool = False) -> Tensor | None:
        """Return what the model, at rest, makes of the texts of its bridge now, (N, D); `None` where there is none."""
        return self._diagnoses.embedded(self._attachment.model, start=start)

    def crossed(self) -> list[Judged]:
        """Return what was found of the bridge last."""
        return self._diagnoses.crossed()

    def cross(self, rows: Tensor, step: int) -> None:
        """Judge what the model makes of the texts of its bridge now, (N, D), and deliver it."""
        self._diagnoses.cross(rows, self._deliver, step=step, fingerprint=self._fingerprint)

    def close_windows(
        self,
        states: Sequence[TableState],
        steps: Steps,
        totals: Watched,
        provenance: Mapping[str, Any],
        *,
        together: bool = False,
    ) -> None:
        """Close, measure, judge and deliver every open window; `together` with those of the other ranks, at the first.

        Whether windows close together must be the same on all ranks, and so must the step.
        """
        self._windows += 1
        self.take_steps(steps)
        if self._joining is not None:
            states, provenance = self._joined(self._joining, states, provenance, together=together)
            if together and not self._joining.ranks.first:
                return
        more: dict[str, Sequence[Measurement]] = {}
        for place, state in enumerate(states):
            with self._boundary.guard("window", state.name, recovers=True):
                self._courses[state.name].update(state.batch())
                more[state.name] = self._embedding(state, first=place == 0)
        for name, course in list(self._courses.items()):
            if course.role != "watching":
                with self._boundary.guard("window", name, recovers=True):
                    self._close(name, course, {**provenance, "more": more.get(name, ())})
        self.urgent = False
        self._deliver(self._own.judge(totals, {**provenance, "fingerprint": self._fingerprint}))

    def _joined(
        self, joining: Joining, states: Sequence[TableState], provenance: Mapping[str, Any], *, together: bool
    ) -> tuple[Sequence[TableState], Mapping[str, Any]]:
        """Put together what all ranks have; return the tables, and the provenance with the number of ranks."""
        if together:
            states = joining.join(self._courses, self._course, states, provenance["step"])
            ranks = {"ranks_expected": joining.ranks.size, "ranks_seen": joining.seen}
            provenance = {**provenance, "coverage": {**provenance["coverage"], **ranks}}
        for step, scalars in joining.take_steps():
            with self._boundary.guard("step", "record", recovers=True):
                self._courses[TRAINING].update(TrainingStep(step, scalars))
        return states, provenance

    def _numbers(self, scalars: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield the scalars of a step as numbers; what is none is counted and left out."""
        for name, value in scalars.items():
            numbers: list[float] = []
            with self._boundary.guard("scalar", name, recovers=True):
                numbers.append(float(value))
            yield from ((name, number) for number in numbers)

    def _close(self, name: str, course: Course, provenance: Mapping[str, Any]) -> None:
        judgement = course.close(**provenance, fingerprint=self._fingerprint)
        if judgement is not None:
            defects = (judgement.snapshot.number(count) for count in DEFECTS)
            if not any(defects):
                self._alarmed.discard(name)
        self._deliver(judgement)

    def _embedding(self, state: TableState, *, first: bool) -> Sequence[Measurement]:
        """Measure what is summed before the first layer, for the first table, and whether a table decays."""
        sums = self._sums if first else {}
        parts = InputParts(
            sums.get("token", torch.zeros(0, self.dimension)),
            sums.get("position"),
            state.decay,
            entering=sums.get("embedding"),
            table=state.scale(self.dimension),
            from_table=first and self._attachment.tables_positions(self.dimension),
        )
        found: list[Measurement] = []
        with self._boundary.guard("diagnostic", EmbeddingScale.name, recovers=True):
            found += EmbeddingScale().examine(parts)[0]
        return found

    def _deliver(self, judgement: Judgement | None) -> None:
        if judgement is None:
            return
        for sink, _ in self._sinks:
            judgement.deliver(sink, self._boundary, windows=self._windows)

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

    def name(number: int) -> str:
        try:
            return str(convert(number) or number)
        except Exception:  # noqa: BLE001 - a table may have more rows than the tokenizer has tokens
            return str(number)

    return lambda numbers: [name(number) for number in numbers]


def _joined(batches: Sequence[VectorBatch]) -> list[VectorBatch]:
    """Join batches of one sort; those of another width stay apart, for the window to refuse."""
    sorts = {(batch.dimension, batch.inputs is None) for batch in batches}
    return [VectorBatch.concat(batches)] if len(sorts) == 1 else list(batches)
