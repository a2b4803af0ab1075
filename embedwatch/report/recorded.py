"""A recording becomes a Report: the course of each measurement, with what the checks found drawn on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.recording import Moment, Recorded, Recording, Spell
from embedwatch.report.contents import Chart, Report, Section
from embedwatch.report.shapes import line, plain, spans_orders
from embedwatch.report.wording import in_words

__all__ = ["RUN_SCHEMA", "report_of_recording"]

RUN_SCHEMA = 1
"""Version of the JSON of a run's report."""
MOST_LARGE = 6
"""Charts of one Space that are not folded away."""
LEAST_POINTS = 2
FAVOURITES = (
    "loss",
    "loss_mean",
    "validation_loss",
    "gradient_norm",
    "learning_rate",
    "norm_mean",
    "effective_rank_ratio",
    "mean_cosine",
    "attention_entropy_ratio",
)
"""Measurements that are looked at first, where they are there."""
GRAVE = ("warn", "fail")
MOST_SPANS = 40


def report_of_recording(recording: Recording) -> Report:
    """Return the report of a run."""
    sections = sorted(map(_section, recording.spaces), key=_place)
    result = {
        "schema": RUN_SCHEMA,
        "status": recording.status,
        "counts": recording.counts(),
        "notes": list(recording.notes),
        "spaces": [
            {
                "snapshot": recorded.snapshot.to_json(),
                "verdicts": [verdict.to_json() for verdict in recorded.verdicts],
                "windows": recorded.windows,
            }
            for recorded in recording.spaces
        ],
    }
    name = recording.path.parent.resolve().name if recording.path.name == "embedwatch.jsonl" else recording.path.name
    windows = max((each.windows for each in recording.spaces), default=0)
    lead = [f"{windows:,} window{'' if windows == 1 else 's'}.", *recording.notes]
    return Report(name, "run", tuple(sections), result, tuple(lead))


def _place(section: Section) -> tuple[bool, bool]:
    """Return where a Space stands: the training first, then what is not sound, each in the order of the recording."""
    return section.provenance.role != "training", section.status in ("ok", "unknown")


def _section(recorded: Recorded) -> Section:
    snapshot = recorded.snapshot
    return Section(
        recorded.space,
        snapshot.provenance,
        snapshot.measurements,
        recorded.verdicts,
        charts=tuple(_courses(recorded)),
    )


def _courses(recorded: Recorded) -> Iterator[Chart]:
    """Yield a chart of each measurement that has a course, those with findings first."""
    snapshots = list(recorded.history)
    by_step = all(snapshot.provenance.step is not None for snapshot in snapshots)
    moments = [_when(Moment.of(snapshot), by_step=by_step) for snapshot in snapshots]
    series = _series(snapshots, by_step=by_step)
    found = _findings(recorded, series)
    names = sorted(series, key=lambda name: _rank(name, series[name], has_finding=name in found))
    for place, name in enumerate(names):
        metric = series[name][0][0].metric
        lines = [(_label(first), points) for first, points in series[name]]
        spells = found.get(name, [])
        yield line(
            f"course_{name}",
            metric.title,
            f"{metric.help}{f' Healthy: {metric.healthy}.' if metric.healthy else ''}",
            lines,
            x="step" if by_step else "time (UTC)",
            y=metric.unit or metric.title,
            x_type="value" if by_step else "time",
            y_type="log" if spans_orders(_usual(lines)) else "value",
            minor=place >= MOST_LARGE and not spells,
            spans=[*_spans(spells, moments)],
            limits=_limits([spell.verdict for spell in spells if _measured(spell.verdict) == name]),
        )


def _usual(lines: Sequence[tuple[str, Sequence[tuple[Any, Any]]]]) -> list[float]:
    """Return the values without the tenth at each end: a first step that differs makes no logarithmic axis."""
    values = sorted(value for _, points in lines for _, value in points if value is not None)
    cut = -(-len(values) // 10)
    return values[cut:-cut]


Course = list[tuple[Measurement, list[tuple[Any, Any]]]]


def _series(snapshots: Sequence[Snapshot], *, by_step: bool) -> dict[str, Course]:
    """Return by name of a measurement the points of each of its labels; those that never change are left out."""
    points: dict[str, tuple[Measurement, list[tuple[Any, Any]]]] = {}
    for snapshot in snapshots:
        when = snapshot.provenance.step if by_step else snapshot.provenance.time
        for measurement in snapshot:
            held = points.setdefault(measurement.key, (measurement, []))
            held[1].append((when, measurement.number))
    found: dict[str, Course] = {}
    for first, course in points.values():
        if len({value for _, value in course if value is not None}) >= LEAST_POINTS:
            found.setdefault(first.name, []).append((first, course))
    return found


def _findings(recorded: Recorded, series: dict[str, Course]) -> dict[str, list[Spell]]:
    """Return by measurement the stretches in which a check that reads it warned or failed.

    What reads none that has a course is drawn on the loss, or on the first.
    """
    found: dict[str, list[Spell]] = {}
    fallback = next((name for name in FAVOURITES if name in series), next(iter(series), None))
    for spells in recorded.spells.values():
        for spell in spells:
            if spell.status in GRAVE:
                name = _measured(spell.verdict)
                home = name if name in series else fallback
                if home is not None:
                    found.setdefault(home, []).append(spell)
    return found


def _spans(spells: Sequence[Spell], moments: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Yield where each finding held: from the window before it was first told to the last that told it.

    The words stand at the longest stretch of each check, those of several checks below one another.
    """
    by_check: dict[str, list[Spell]] = {}
    for spell in spells:
        by_check.setdefault(spell.verdict.check, []).append(spell)
    for row, held in enumerate(by_check.values()):
        longest = max(held, key=lambda spell: spell.windows)
        for spell in held[-MOST_SPANS:]:
            since, until = (
                _when(moment, by_step=spell.since.step is not None) for moment in (spell.since, spell.until)
            )
            before = max((moment for moment in moments if moment < since), default=since)
            text = spell.verdict.title if spell is longest else ""
            yield {"from": before, "to": until, "status": spell.status, "text": text, "row": row}


def _when(moment: Moment, *, by_step: bool) -> float:
    return moment.step if by_step and moment.step is not None else moment.time


def _measured(verdict: Verdict) -> str:
    """Return the name of what was judged, without its labels."""
    return verdict.evidence.measurement.partition("{")[0]


def _limits(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the limits that were crossed, each once."""
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for verdict in verdicts:
        limit = verdict.evidence.limit
        for status, value in () if limit is None else (("warn", limit.warn), ("fail", limit.fail)):
            if value is not None:
                found[status, value] = {"value": plain(value), "status": status, "text": status}
    return list(found.values())


def _rank(name: str, course: Course, *, has_finding: bool) -> tuple[bool, int, bool, str]:
    known = FAVOURITES.index(name) if name in FAVOURITES else len(FAVOURITES)
    return not has_finding, known, not course[0][0].metric.headline, name


def _label(measurement: Measurement) -> str:
    values = [f"{in_words(name)} {value}" for name, value in measurement.labels.items()]
    return " ".join(values) or measurement.metric.title
