"""Lines of a recording: bytes on disk become entries, or say why they cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from embedwatch.core.errors import EmbedwatchError, InputError
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

__all__ = ["LONGEST_LINE", "Damage", "Entry", "read_lines"]

LONGEST_LINE = 64 << 20
"""Bytes of the longest line that is read. With every exhibit full, a line has a few megabytes."""
CHUNK = 1 << 20
START = b'{"snapshot":'
"""How each line starts. A text inside JSON cannot hold it: there, its quotes stand behind backslashes."""
MOST_DIGITS = 17
"""No more significant digits tell two floats apart."""
LARGEST_STEP = 2**63 - 1
QUOTED = 80
"""So much of what is wrong is quoted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a Snapshot and its verdicts. `mended` says that half a line stood before it, and was left out."""

    line: int
    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    mended: bool = False


@dataclass(frozen=True, slots=True)
class Damage:
    """One line that cannot be read. `cut` says that it is the last and has no end: it was being written."""

    line: int
    reason: str
    cut: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"line": self.line, "reason": self.reason, "cut": self.cut}


def read_lines(path: Path, size: int) -> Iterator[Entry | Damage]:
    """Yield each line among the first `size` bytes, without its exhibits; empty lines are passed over.

    Memory: one line, at most `LONGEST_LINE` bytes and what JSON makes of it.

    Args:
        path: a file of JSON lines.
        size: where to end, so that a file that grows is read no further than it was at first.
    """
    number = 0
    with path.open("rb") as file:
        while (place := file.tell()) < size:
            number += 1
            line = file.readline(min(LONGEST_LINE, size - place))
            if not line:
                return  # it was shortened meanwhile
            if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
                ended = _skip_line(file, size)
                yield Damage(number, f"longer than {LONGEST_LINE >> 20} MiB", cut=not ended)
            elif line.strip():
                yield _read(line, number)


def _skip_line(file: IO[bytes], size: int) -> bool:
    """Pass over the rest of a line; return whether it has an end."""
    while (place := file.tell()) < size and (chunk := file.readline(min(CHUNK, size - place))):
        if chunk.endswith(b"\n"):
            return True
    return False


def _read(line: bytes, number: int) -> Entry | Damage:
    """Return the entry of a line, or that of the whole line behind the half one that a killed writer left."""
    try:
        return _entry(line, number)
    except InputError as error:
        start = line.rfind(START)
        if start > 0:
            try:
                return _entry(line[start:], number, mended=True)
            except InputError:
                pass
        return Damage(number, _brief(str(error)), cut=not line.endswith(b"\n"))


def _entry(line: bytes, number: int, *, mended: bool = False) -> Entry:
    try:
        fields = json.loads(line.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON from character {error.pos + 1:,} on") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("snapshot"), dict):
        raise InputError("holds no snapshot")
    try:
        snapshot = Snapshot.from_json(fields["snapshot"])
        verdicts = tuple(Verdict.from_json(each) for each in fields.get("verdicts", ()))
        _require_plain(snapshot, verdicts)
    except EmbedwatchError as error:
        raise InputError(str(error)) from error
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"not what embedwatch writes: {error!r}") from error
    return Entry(number, snapshot, verdicts, mended)


def _require_plain(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> None:
    """Refuse fields of another type than what is written: they would only fail later, where they are shown."""
    provenance = snapshot.provenance
    for space in (snapshot.space, *(verdict.space for verdict in verdicts)):
        _require(all(isinstance(part, str) for part in space.labels().values()), "space", space)
    step = provenance.step
    _require(step is None or (_whole(step) and 0 <= step <= LARGEST_STEP), "step", step)
    _require(_whole(provenance.dimension) or provenance.dimension is None, "dimension", provenance.dimension)
    _require(_texts_to(int, provenance.coverage), "coverage", provenance.coverage)
    _require(all(isinstance(note, str) for note in provenance.notes), "notes", provenance.notes)
    for measurement in snapshot:
        metric = measurement.metric
        _require(_whole(metric.digits) and 1 <= metric.digits <= MOST_DIGITS, "digits", metric.digits)
        _require(isinstance(metric.headline, bool), "headline", metric.headline)
        _require(_texts_to(str, measurement.labels), "labels", measurement.labels)
        _require(isinstance(metric.unit, str) and isinstance(metric.healthy, str), "unit", metric.unit)
        _ = measurement.number  # a whole number may be too large for a float


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts_to(kind: type, value: Mapping[str, object]) -> bool:
    return all(isinstance(each, kind) for each in value.values())


def _require(held: object, name: str, value: object) -> None:
    if not held:
        raise InputError(f"{name} cannot be {value!r}")


def _brief(text: str) -> str:
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= QUOTED else line[: QUOTED - 1] + "…"
