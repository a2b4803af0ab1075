"""Diagnosing: a model is examined, place by place, and what was found is judged."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.inquiry import Inquiry
from embedwatch.judged import Judged, cited
from embedwatch.judging import Judge
from embedwatch.observe.modes import outside_modes
from embedwatch.observe.resting import resting
from embedwatch.reading import Progress, silent
from embedwatch.selection import DiagnosticSelection
from embedwatch.window import library_versions

__all__ = ["diagnose"]

ONE = 1
"""What the measurements of a diagnostic rest on: one model."""


@dataclass
class _Found:
    """What the diagnostics of one place found, and why some found nothing."""

    measurements: list[Measurement] = field(default_factory=list)
    exhibits: list[Exhibit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def diagnose(
    inquiry: Inquiry,
    *,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    places: Sequence[str] = (),
    exhibits: bool = False,
    boundary: Boundary | None = None,
    judge: Judge | None = None,
    step: int | None = None,
    progress: Progress = silent,
) -> list[Judged]:
    """Examine a model and judge what was found: one Space for each place that diagnostics speak of.

    A diagnostic is asked where it applies to the model, where what it needs was given, and, if it runs the model, where
    that is wanted. One that raises is counted at the boundary; one that the model has nothing for is noted.

    Args:
        inquiry: the model, and what is asked.
        only: names of diagnostics, measurements or checks to keep.
        skip: names of those to leave out.
        places: of these places only; all by default.
        exhibits: keep all exhibits, not only those that a verdict cites.
        boundary: where exceptions end.
        judge: asks the checks; all that are registered by default.
        step: training step of the model, where there is one.
        progress: shows diagnostics done.

    Raises:
        UsageError: for a name that is no diagnostic, measurement or check.

    Example:
        >>> from embedwatch.loading.live import LiveSubject
        >>> from embedwatch_model import ModelConfig, Transformer
        >>> model = Transformer(ModelConfig(vocabulary=50, d_model=16, layers=2, heads=2))
        >>> found = diagnose(Inquiry(LiveSubject(model)))
        >>> all(judged.snapshot.space.model == "Transformer" for judged in found)
        True
    """
    boundary = boundary or Boundary()
    selection = DiagnosticSelection.choose(only=only, skip=skip)
    asked = [cls for cls in selection.diagnostics if not places or cls.place in places]
    judge = judge or Judge([check() for check in selection.checks], boundary=boundary)
    found: dict[str, _Found] = {}
    with progress(f"{inquiry.subject.label}/diagnostics", len(asked)) as advance:
        for done, cls in enumerate(asked, 1):
            _ask(cls, inquiry, found.setdefault(cls.place, _Found()), boundary)
            advance(done)
    return list(_judged(found, inquiry, selection, judge, step=step, exhibits=exhibits))


def _ask(cls: type[Diagnostic], inquiry: Inquiry, found: _Found, boundary: Boundary) -> None:
    """Let one diagnostic examine the model, and keep what it finds."""
    if not all(inquiry.holds(name) for name in cls.needs) or (cls.runs_model and not inquiry.runs):
        return
    started = time.perf_counter()
    with boundary.guard("diagnostic", cls.name):
        try:
            diagnostic = cls()
            if diagnostic.applies(inquiry):
                # Beside a training the random numbers are the training's: only who runs the model may put them back.
                with resting(_models(inquiry)) if cls.runs_model else outside_modes():
                    measurements, exhibits = diagnostic.examine(inquiry)
                found.measurements += measurements
                found.exhibits += exhibits
        except InputError as error:  # the model has not what it takes: that is said, and is no fault of ours
            found.notes.append(f"{cls.title} was not examined: {error}")
    found.seconds += time.perf_counter() - started


def _models(inquiry: Inquiry) -> list[nn.Module]:
    """Return what a diagnostic may run: the part that reads, and the whole that writes."""
    models = [inquiry.subject.module()]
    if inquiry.prompts:
        models += filter(None, [inquiry.subject.writer()])
    return models


def _judged(
    found: dict[str, _Found],
    inquiry: Inquiry,
    selection: DiagnosticSelection,
    judge: Judge,
    *,
    step: int | None,
    exhibits: bool,
) -> Iterator[Judged]:
    subject = inquiry.subject
    for place, part in found.items():
        if not part.measurements and not part.notes:
            continue
        provenance = Provenance(
            time=time.time(),
            rows=ONE,
            dimension=subject.dimension or None,
            step=step,
            fingerprint=subject.fingerprint(),
            versions=library_versions(),
            notes=tuple(part.notes),
            role=place,
        )
        snapshot = Snapshot(Space(subject.label, place), tuple(part.measurements), provenance)
        verdicts = tuple(judge.judge(snapshot))
        kept = {exhibit.name for exhibit in part.exhibits} if exhibits else set(cited(verdicts))
        shown = tuple(measurement for measurement in part.measurements if measurement.name in selection.metrics)
        yield Judged(
            Snapshot(snapshot.space, shown, provenance),
            verdicts,
            tuple(exhibit for exhibit in part.exhibits if exhibit.name in kept),
            part.seconds,
        )
