"""Appends JSON lines to a file."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

APPEND = os.O_WRONLY | os.O_APPEND
EFFECTIVE = os.access in os.supports_effective_ids
SETTLE = 0.05
"""Seconds after which a file without an end of line that has not grown is not being written to by another."""


class JsonLines(Sink):
    """Appends one line of JSON for each Snapshot to a file: `{"snapshot": …, "verdicts": […], "exhibits": […]}`.

    A line is handed to the system in one write, so a reader never sees half of one, and what other processes append
    stays. The file is opened for each line: it may be rotated or removed at any time. Where a writer that was killed
    left half a line, that is ended first: at worst an empty line stands where another process was just writing.

    Args:
        path: a file that can be appended to, or made. Nothing is made before the first line, with which folders that
            are missing come as well.

    Raises:
        UsageError: if the file cannot be written.
    """

    name = "jsonl"
    title = "JSON lines"
    target = "PATH"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            _require_writable(self.path)
        except OSError as error:
            raise UsageError(
                f"sink jsonl needs a file that can be written, got {str(self.path)!r}: {error.strerror}; "
                "change its permissions, or name another file"
            ) from error

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Append one line."""
        entry = {
            "snapshot": snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in verdicts],
            "exhibits": [exhibit.to_json() for exhibit in exhibits],
        }
        text = (json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        try:
            handle = os.open(self.path, APPEND | os.O_CREAT, 0o644)
        except FileNotFoundError:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, APPEND | os.O_CREAT, 0o644)
        try:
            line = memoryview(b"\n" + text if _ends_midway(self.path, handle) else text)
            while line:
                line = line[os.write(handle, line) :]
        finally:
            os.close(handle)


def _require_writable(path: Path) -> None:
    """Refuse a path that no line can be appended to, without making a file.

    Raises:
        UsageError: if it is a folder, or would lie below a file.
        OSError: if the system does not let us write there.
    """
    if "\0" in str(path):
        raise UsageError(f"sink jsonl needs a file, got {str(path)!r}, which no file is called; name another")
    if path.is_dir():
        raise UsageError(f"sink jsonl needs a file, got the folder {str(path)!r}; name a file in it")
    folder = next(above for above in path.absolute().parents if above.exists())
    if not folder.is_dir():
        raise UsageError(
            f"sink jsonl needs a file below folders, got {str(path)!r}, where {str(folder)!r} is a file; name another"
        )
    if path.is_file():
        os.close(os.open(path, APPEND))
    elif not path.exists() and not os.access(folder, os.W_OK | os.X_OK, effective_ids=EFFECTIVE):
        raise PermissionError(errno.EACCES, f"nothing can be made in {str(folder)!r}")


def _ends_midway(path: Path, handle: int) -> bool:
    """Whether a file ends without an end of line, and is not growing: its last writer was killed."""
    before = os.fstat(handle)
    if not stat.S_ISREG(before.st_mode) or not before.st_size or _ends_line(path):
        return False
    time.sleep(SETTLE)  # what another process writes now may be seen in parts, for a moment
    return os.fstat(handle).st_size == before.st_size


def _ends_line(path: Path) -> bool:
    """Whether the last byte of a file ends a line; one that cannot be read is taken to be whole."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True
