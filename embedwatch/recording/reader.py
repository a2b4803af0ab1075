"""Reads a recording, whatever its length and whatever happened to it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import STATUSES, Status, worst
from embedwatch.recording.lines import Damage, Entry, read_lines
from embedwatch.recording.recorded import Recorded, Tally
from embedwatch.recording.traces import Moment
from embedwatch.recording.turns import Turns

__all__ = ["MOST_LAST", "RECORDING_FILE", "Recording", "read_recording"]

RECORDING_FILE = "embedwatch.jsonl"
"""Name of the recording in the folder of a run."""
MOST_LAST = 1_000
"""So many of the last windows can be asked for."""
MOST_SPACES = 1_000
MOST_KEPT = 20_000
"""Bounds of how many measurements and checks are kept, over all Spaces: what lies beyond is left out, and said."""
MOST_DAMAGED = 20
"""So many damaged lines are named; all are counted."""
NAMED = 3
"""So many of several things are named in a note."""


@dataclass(frozen=True)
class Recording:
    """All Spaces of a recording, in the order in which they first appear.

    Args:
        path: the file.
        spaces: what is told of each.
        lines: number of lines in the file, empty ones aside.
        lost: number of lines that cannot be read.
        damaged: the first of them, with the reason.
        notes: sentences that a reader of the numbers must know.
    """

    path: Path
    spaces: tuple[Recorded, ...]
    lines: int
    lost: int = 0
    damaged: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The gravest of the newest verdicts; `unknown` where nothing could be judged."""
        found = (verdict.status for recorded in self.spaces for verdict in recorded.verdicts)
        return worst([status for status in found if status != "unknown"])

    def counts(self) -> dict[str, int]:
        """Return the number of the newest verdicts by status."""
        found = Counter(verdict.status for recorded in self.spaces for verdict in recorded.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}


def read_recording(
    path: str | os.PathLike[str], *, since: int | datetime | None = None, last: int | None = None
) -> Recording:
    """Read a recording: the course of each Space, its newest verdicts, and when they changed.

    A line that cannot be read is left out and counted. Where a Space goes back to an earlier step, as a resumed
    training does, what it had written from that step on does not count.

    State: a bounded number of Snapshots a Space, whatever the length of the file. Two passes over the file where a
    Space went back, one otherwise.

    Args:
        path: the file, or the folder of a run that holds `embedwatch.jsonl`.
        since: tell only of windows from this training step or time on.
        last: tell only of so many windows of each Space, the newest.

    Raises:
        InputError: if there is no such file, or nothing in it can be read.
        UsageError: if `last` or `since` leaves nothing.

    Example:
        >>> import tempfile
        >>> from embedwatch.core import Metric, Provenance
        >>> from embedwatch.sinks.jsonl import JsonLines
        >>> with tempfile.TemporaryDirectory() as run:
        ...     with JsonLines(Path(run, RECORDING_FILE)) as sink:
        ...         for step, loss in ((10, 3.5), (20, 2.5), (30, 3.0)):
        ...             measured = (Metric("loss", "Loss.").measure(loss),)
        ...             sink.write(Snapshot(Space("m", "training"), measured, Provenance(0.0, 10, step=step)), [])
        ...     trace = read_recording(run).spaces[0].traces["loss"]
        >>> trace.first, trace.min, trace.last
        (3.5, 2.5, 3.0)
    """
    if last is not None and not 1 <= last <= MOST_LAST:
        raise UsageError(f"`last` must be from 1 to {MOST_LAST:,}, got {last:,}; name how many windows to tell of")
    if not os.fspath(path):  # of a path it would make the folder that one happens to be in
        raise UsageError("`path` must be a recording or the folder of a run, got an empty name; name one")
    file = _file(Path(path))
    try:
        size = file.stat().st_size
        reading = _Reading(file, size, Turns(), since=since, last=last)
        if reading.turns:
            reading = _Reading(file, size, reading.turns, since=since, last=last)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; check its permissions and the disk") from error
    return reading.result()


def _file(path: Path) -> Path:
    """Return the file that holds the recording: the path itself, or what lies in that folder."""
    try:
        file = path / RECORDING_FILE if path.is_dir() else path
        exists, regular = file.exists(), file.is_file()
    except OSError as error:
        raise InputError(f"{path} cannot be looked at: {error.strerror}; check its permissions") from error
    if not exists:
        raise InputError(f"{file} does not exist; record it with --sink jsonl:{file}")
    if not regular:
        raise InputError(f"{file} must be a regular file, got a pipe or device; write its lines to a file first")
    return file


class _Reading:
    """One pass over a file. On the first, `turns` is empty and is filled; on the second, it tells what to pass over."""

    def __init__(self, file: Path, size: int, turns: Turns, *, since: int | datetime | None, last: int | None) -> None:
        self.file, self.turns = file, turns
        self._since, self._last = since, last
        self._tallies: dict[Space, Tally] = {}
        self._damaged: list[Damage] = []
        self._mended: list[int] = []
        self._lines = self._lost = self._superseded = self._kept = 0
        self._crowded = False
        self._newest: Snapshot | None = None
        again = bool(turns)
        for each in read_lines(file, size):
            self._lines += 1
            if isinstance(each, Damage):
                self._lost += 1
                self._damaged += [each] if len(self._damaged) < MOST_DAMAGED else []
            elif again and turns.supersede(each):
                self._superseded += 1
            else:
                self._take(each, again=again)

    def _take(self, entry: Entry, *, again: bool) -> None:
        space = entry.snapshot.space
        tally = self._tallies.get(space)
        if tally is None:
            if len(self._tallies) >= MOST_SPACES:
                self._crowded = True
                return
            tally = self._tallies[space] = Tally(self._has_room, last=self._last)
        if not again:
            self.turns.note(entry)
        self._mended += [entry.line] if entry.mended and len(self._mended) <= NAMED else []
        self._newest = entry.snapshot
        tally.judge(entry.snapshot, entry.verdicts)
        if self._told(entry.snapshot):
            tally.add(entry.snapshot)

    def _told(self, snapshot: Snapshot) -> bool:
        """Whether a window lies in what is asked for."""
        if isinstance(self._since, datetime):
            return snapshot.provenance.time >= self._since.timestamp()
        return self._since is None or (snapshot.provenance.step or 0) >= self._since

    def _has_room(self) -> bool:
        self._kept += 1
        self._crowded |= self._kept > MOST_KEPT
        return self._kept <= MOST_KEPT

    def result(self) -> Recording:
        """Return what was read."""
        spaces = [recorded for tally in self._tallies.values() if (recorded := tally.recorded()) is not None]
        if self._newest is None:
            raise InputError(self._nothing())
        if not spaces:
            newest = Moment.of(self._newest)
            raise UsageError(f"`since` must leave a window, got {self._since}; the newest is of {newest}")
        return Recording(self.file, tuple(spaces), self._lines, self._lost, tuple(self._damaged), tuple(self._notes()))

    def _nothing(self) -> str:
        if not self._damaged:
            return f"{self.file} holds no line yet; wait for the first window, or give another file"
        first = self._damaged[0]
        if first.cut and self._lost == 1:
            return f"{self.file} holds one line, and that is cut; wait until it is written, or give another file"
        return (
            f"{self.file} cannot be read: none of its {self._lost:,} lines is what the jsonl sink writes, "
            f"line {first.line:,}: {first.reason}; give a file that it wrote"
        )

    def _notes(self) -> list[str]:
        notes = []
        if self._superseded:
            what = "1 window" if self._superseded == 1 else f"{self._superseded:,} windows"
            count = "does not count" if self._superseded == 1 else "do not count"
            notes.append(
                f"The run went back to {_listed('step', self.turns.steps())}; {what} that it had written {count}."
            )
        if self._mended:
            begin = "begins" if len(self._mended) == 1 else "begin"
            lines = _listed("Line", self._mended)
            notes.append(f"{lines} {begin} with half a line that was cut off; what follows it was read.")
        notes += [_damage_note(damage) for damage in self._damaged[:NAMED]]
        if self._lost > NAMED:
            notes.append(f"{self._lost - NAMED:,} more lines cannot be read; they are left out.")
        if self._crowded:
            notes.append(f"Of more than {MOST_SPACES:,} spaces or {MOST_KEPT:,} measurements the last are left out.")
        if any(tally.forgotten for tally in self._tallies.values()):
            notes.append("Some checks changed their verdict so often that only the newest changes are known.")
        return notes


def _damage_note(damage: Damage) -> str:
    if damage.cut:
        return f"Line {damage.line:,}, the last, is cut: it is being written, or its writer was killed."
    return f"Line {damage.line:,} cannot be read and is left out: {damage.reason}."


def _listed(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with its numbers: a comma alone would run into those of their thousands."""
    texts = [f"{number:,}" for number in numbers[:NAMED]] + (["others"] if len(numbers) > NAMED else [])
    if len(texts) == 1:
        return f"{noun} {texts[0]}"
    return f"{noun}s {', '.join(texts[:-1])} and {texts[-1]}"
