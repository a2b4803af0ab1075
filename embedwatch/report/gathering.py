"""An input becomes a Report: what the command for it finds, and maps of the rows that it read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.recording import RECORDING_FILE, read_recording
from embedwatch.report.contents import Chart, Report, Section
from embedwatch.report.maps import map_chart, witnesses_of
from embedwatch.report.recorded import report_of_recording
from embedwatch.report.saved import read_saved, report_of

if TYPE_CHECKING:
    from embedwatch.core.source import Source
    from embedwatch.mapping import Frame, KeptRows
    from embedwatch.reading import Progress

    Given = str | os.PathLike[str] | Source

__all__ = ["MOST_POINTS", "report_audit", "report_comparison", "report_pair", "report_written", "was_written"]

MOST_POINTS = 50_000
"""Rows of a map, at most."""
MAP = "space_map"
SHARED = 0.5
"""Share of rows of the same number from which two inputs are states of one space."""


def was_written(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of results: a recording, the folder of a run, or JSON of a command.

    Example:
        >>> was_written("vectors.npy")
        False
    """
    given = Path(path)
    if given.suffix in (".json", ".jsonl"):
        return given.is_file()
    return (given / RECORDING_FILE).is_file()


def report_written(path: str | os.PathLike[str], title: str = "") -> Report:
    """Return the report of a recording, a run's folder, or JSON of audit, compare or align check.

    Raises:
        InputError: if it cannot be read, or is something else.
    """
    given = Path(path)
    found = read_saved(given) if given.suffix == ".json" else report_of_recording(read_recording(given))
    return replace(found, title=title or found.title)


def report_audit(
    inputs: Sequence[Given],
    *,
    title: str = "",
    points: int = MOST_POINTS,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """Return the report of an audit: its verdicts, all exhibits, and a map of each space that has rows.

    Inputs of which the rows of one place carry the same numbers, as checkpoints of one model do, share one map whose
    states are turned to fit one another.

    Args:
        inputs: what `embedwatch.audit` takes, checkpoints in their order.
        title: what was looked at.
        points: rows of a map, at most; 0 for none.
        progress: shows rows done.
        options: of `embedwatch.audit`.
    """
    from embedwatch.auditing import audit
    from embedwatch.mapping import KeptRows

    read: dict[int, tuple[Source, KeptRows]] = {}

    def keep(source: Source, batch: Any) -> None:
        read.setdefault(id(source), (source, KeptRows(points)))[1].offer(batch)

    found = audit(*inputs, exhibits=True, on_rows=keep if points else None, progress=progress, **options)
    report = report_of(found.to_json(), title)
    with _working(progress, "maps"):
        return _with_maps(report, [*read.values()])


def report_comparison(
    against: Given,
    given: Given,
    *,
    title: str = "",
    points: int = MOST_POINTS,
    progress: Progress | None = None,
    model: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    select: str | None = None,
    pooling: str | None = None,
    prefix: str | None = None,
    **options: Any,
) -> Report:
    """Return the report of a comparison: its verdicts and exhibits, and both sides in one map with the witnesses.

    Args:
        against: the reference: rows, or the folder of a saved one, of which no rows are drawn.
        given: what is compared with it.
        title: what was looked at.
        points: rows of the map, at most; 0 for none.
        progress: shows rows done.
        model: encodes both, which are then files of texts.
        kind: kind of both inputs.
        select: array, tensor or column to read.
        pooling: how token vectors become one, with `model`.
        prefix: put before each text, with `model`.
        options: of `embedwatch.compare`.
    """
    from embedwatch.comparing import compare
    from embedwatch.mapping import Overheard
    from embedwatch.reading import open_rows
    from embedwatch.references import is_reference

    saved = isinstance(against, str | os.PathLike) and is_reference(Path(against))
    asked = [given] if saved else [against, given]
    opened = open_rows(asked, model=model, kind=kind, select=select, pooling=pooling, prefix=prefix)
    sides = [Overheard(source, max(1, points // len(opened))) for _, source in opened]
    found = compare(against if saved else sides[0], sides[-1], progress=progress, **options)
    report = report_of(found.to_json(), title)
    if not points:
        return report
    with _working(progress, "maps"):
        chart = _sides_map(report.sections[0], sides)
    first = replace(report.sections[0], charts=(chart,)) if chart is not None else report.sections[0]
    return replace(report, sections=(first, *report.sections[1:]))


def report_pair(left: Given, right: Given, *, title: str = "", **options: Any) -> Report:
    """Return the report of two spaces of the same items: what they are to one another, and recall curves.

    Args:
        left: the old space.
        right: the new one.
        title: what was looked at.
        options: of `embedwatch.align.checking.check_pair`.
    """
    from embedwatch.align.checking import check_pair

    return report_of(check_pair(left, right, **options).to_json(), title)


@contextmanager
def _working(progress: Progress | None, what: str) -> Iterator[None]:
    if progress is None:
        yield
        return
    with progress(what, None):
        yield


def _with_maps(report: Report, read: Sequence[tuple[Source, KeptRows]]) -> Report:
    """Return a report with a map in the section of each Source, or one map of those that are states of one space."""
    from embedwatch.mapping import lay_out

    waiting = [*read]
    sections = [*report.sections]
    shared: list[Chart] = []
    while waiting:
        source, _ = waiting[0]
        states = [each for each in waiting if _same_space(waiting[0], each)]
        waiting = [each for each in waiting if not any(each is state for state in states)]
        homes = [_home(sections, each[0]) for each in states]
        frames = lay_out([(each.label, kept) for each, kept in states])
        seen = [sections[home] for home in homes if home is not None]
        chart = map_chart(
            MAP,
            "map of the space"
            if len(frames) == 1
            else f"map of {source.place.replace('_', ' ')} through {len(frames)} states",
            frames,
            _names([each for each, _ in states]),
            groups=_groups([kept for _, kept in states], frames),
            witnesses=[witnesses_of(section.verdicts, section.exhibits) for section in seen],
        )
        if chart is None:
            continue
        if len(frames) > 1 or homes[0] is None:
            shared.append(chart)
        else:
            home = homes[0]
            sections[home] = replace(sections[home], charts=(chart, *sections[home].charts))
    return replace(report, sections=tuple(sections), charts=(*shared, *report.charts))


def _same_space(first: tuple[Source, KeptRows], other: tuple[Source, KeptRows]) -> bool:
    """Return whether two sources hold states of one space: same place, same dimension, rows of the same numbers."""
    if first is other:
        return True
    (source, kept), (another, also) = first, other
    if source.place != another.place or kept.rows.shape[1:] != also.rows.shape[1:]:
        return False
    mine, theirs = set(kept.ids.tolist()), set(also.ids.tolist())
    return len(mine & theirs) >= SHARED * max(len(mine), len(theirs), 1)


def _home(sections: Sequence[Section], source: Source) -> int | None:
    """Return the section of a Source: the first of its name that has no map yet."""
    for place, section in enumerate(sections):
        same = (section.space.model, section.space.place) == (source.label, source.place)
        if same and not any(chart.kind == "map" for chart in section.charts):
            return place
    return None


def _names(sources: Sequence[Source]) -> Callable[[int, Sequence[int]], Sequence[str]]:
    return lambda place, ids: sources[place].names(ids)


def _groups(kept: Sequence[KeptRows], frames: Sequence[Frame]) -> list[tuple[str, list[str], list[list[int]]]]:
    """Return the labels of the rows as a way of colouring, where there are any; one table of names for all states."""
    names = sorted({name for each in kept for name in each.group_names})
    if not names or len(frames) != len(kept):
        return []
    members = []
    for each in kept:
        place = {number: names.index(name) for name, number in each.group_names.items()}
        members.append([place.get(group, -1) for group in each.groups.tolist()])
    return [("group", names, members)]


def _sides_map(section: Section, sides: Sequence[Any]) -> Chart | None:
    """Return one map of both sides of a comparison."""
    from embedwatch.mapping import joined, lay_out

    kept = [side.kept for side in sides]
    frames = lay_out([(section.space.model, joined(kept))])
    if not frames:
        return None
    own = [each.ids.tolist() for each in kept]
    side_of = [place for place, ids in enumerate(own) for _ in ids]
    titles = [side.label for side in sides]
    if len(titles) > 1 and len(set(titles)) == 1:
        titles = [f"{title} ({what})" for title, what in zip(titles, ("reference", "current"), strict=True)]
    names = [name for side, ids in zip(sides, own, strict=True) for name in side.names(ids)]
    if all(name.isdecimal() for name in names):
        names = [f"row {name} of {titles[place]}" for name, place in zip(names, side_of, strict=True)]
    frame = frames[0].numbered([row for ids in own for row in ids])
    groups: list[tuple[str, list[str], list[list[int]]]] = [("side", titles, [side_of])] if len(sides) > 1 else []
    witnesses: Mapping[int, str] = witnesses_of(section.verdicts, section.exhibits)
    title = "reference against current" if len(sides) > 1 else "map of the space"
    return map_chart(MAP, title, [frame], lambda place, ids: names, groups=groups, witnesses=[witnesses])
