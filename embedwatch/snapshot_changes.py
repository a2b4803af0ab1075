"""Two measured states side by side: what each measurement was and is, without rows and so without a p-value."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.strict_json import strict_json

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from embedwatch.references import Reference

    Measured = str | os.PathLike[str] | Snapshot | Reference

__all__ = ["CHANGES_SCHEMA", "Change", "SnapshotChanges", "compare_snapshots", "holds_snapshots"]

CHANGES_SCHEMA = 1
"""Version of the JSON that SnapshotChanges writes."""
SUFFIXES = (".json", ".jsonl")
MOST_BYTES = 256 << 20
NO_SURENESS = "Values side by side: without rows nobody can say how surely they differ."
"""What a reader must know."""


@dataclass(frozen=True)
class Change:
    """One measurement in both states; `None` where it was not there, or rests on too little data."""

    space: Space
    key: str
    unit: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float | None:
        """How much it grew."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def quotient(self) -> float | None:
        """How many times what it was; `None` where it was 0."""
        return self.after / self.before if self.before and self.after is not None else None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        own = {"measurement": self.key, "unit": self.unit, "before": self.before, "after": self.after}
        return {"space": self.space.labels(), **own, "difference": self.difference, "quotient": self.quotient}


@dataclass(frozen=True)
class SnapshotChanges:
    """Two measured states side by side.

    Args:
        before, after: what people call them.
        changes: measurement by measurement, Space by Space.
        only_before, only_after: Spaces that the other state does not have.
    """

    before: str
    after: str
    changes: tuple[Change, ...]
    only_before: tuple[Space, ...] = ()
    only_after: tuple[Space, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": CHANGES_SCHEMA,
            "before": self.before,
            "after": self.after,
            "note": NO_SURENESS,
            "changes": [change.to_json() for change in self.changes],
            "only_before": [space.labels() for space in self.only_before],
            "only_after": [space.labels() for space in self.only_after],
        }


def compare_snapshots(a: Measured, b: Measured) -> SnapshotChanges:
    """Put two measured states side by side: what every measurement was, is, and how much it changed.

    Nothing is judged: without the rows nobody can say how surely two numbers differ. `embedwatch.compare` takes rows.

    Args:
        a: before: a Snapshot, a reference or its folder, or a file that `audit --json`, `compare --json` or the sink
            `jsonl` wrote, of which the newest Snapshot of each Space counts.
        b: after, the same.

    Raises:
        InputError: if a file cannot be read, or both have no Space in common.
        UsageError: if one is neither.

    Example:
        >>> from embedwatch.core import Metric, Provenance
        >>> rank = Metric("effective_rank", "Dimensions in use.")
        >>> then, now = (Snapshot(Space("m", "p"), (rank.measure(x),), Provenance(0.0, 9)) for x in (20.0, 15.0))
        >>> compare_snapshots(then, now).changes[0].quotient
        0.75
    """
    (old, before), (new, after) = _opened("a", a), _opened("b", b)
    if len(before) == 1 and len(after) == 1:
        pairs = [(before[0], after[0])]
    else:
        there = {_key(snapshot): snapshot for snapshot in before}
        pairs = [(there[_key(snapshot)], snapshot) for snapshot in after if _key(snapshot) in there]
    if not pairs:
        raise InputError(f"{new} must have a place that {old} has, got none; name two states of one model or source")
    used = {id(snapshot) for pair in pairs for snapshot in pair}
    return SnapshotChanges(
        old,
        new,
        tuple(change for pair in pairs for change in _changes(*pair)),
        tuple(snapshot.space for snapshot in before if id(snapshot) not in used),
        tuple(snapshot.space for snapshot in after if id(snapshot) not in used),
    )


def holds_snapshots(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is that of measured states: JSON, as opposed to vectors and models."""
    return Path(path).suffix.lower() in SUFFIXES and Path(path).is_file()


def _key(snapshot: Snapshot) -> tuple[str, ...]:
    space = snapshot.space
    return space.place, space.segment, space.head or ""


def _changes(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    then = {measurement.key: measurement for measurement in before}
    now = {measurement.key: measurement for measurement in after}
    for key in [*now, *(key for key in then if key not in now)]:
        measurement: Measurement = now[key] if key in now else then[key]
        if measurement.metric.kind == "histogram":
            continue
        numbers = (then[key].number if key in then else None, now[key].number if key in now else None)
        if numbers != (None, None):
            yield Change(after.space, key, measurement.metric.unit, *numbers)


def _opened(argument: str, given: Any) -> tuple[str, Sequence[Snapshot]]:
    if isinstance(given, Snapshot):
        return str(given.space), [given]
    if isinstance(given, str | os.PathLike):
        path = Path(given)
        if path.is_dir():
            from embedwatch.references import load_reference  # with torch, so only where one is named

            return path.name, [load_reference(path).snapshot()]
        return path.name, _read(path)
    if hasattr(given, "origin") and hasattr(given, "snapshot"):
        return str(given.origin.space), [given.snapshot()]
    raise UsageError(
        f"`{argument}` must be a Snapshot, a reference or a JSON file of these, got {type(given).__name__}; "
        "write one with `embedwatch audit --json`"
    )


def _read(path: Path) -> list[Snapshot]:
    """Return the newest Snapshot of each Space in a file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} must have at most {MOST_BYTES:,} bytes, got more; cut it")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path} must be readable, got {error.strerror}; check the path") from error
    lines = [line for line in text.splitlines() if line.strip()] if path.suffix.lower() == ".jsonl" else [text]
    found: dict[Space, Snapshot] = {}
    for line in lines:
        data = strict_json(line, path.name)
        for each in _within(data):
            snapshot = Snapshot.from_json(each)
            found[snapshot.space] = snapshot
    if not found:
        raise InputError(
            f"{path} must hold snapshots, got other JSON; write it with `embedwatch audit --json` or the sink jsonl"
        )
    return list(found.values())


def _within(data: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what looks like a Snapshot in what one of our commands wrote."""
    if not isinstance(data, dict):
        return
    if isinstance(data.get("spaces"), list):
        for each in data["spaces"]:
            yield from _within(each)
    elif isinstance(data.get("snapshot"), dict):
        yield data["snapshot"]
    elif isinstance(data.get("measurements"), list):
        yield data
