"""Appends JSON lines to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict


class JsonLines(Sink):
    """Appends one line of JSON for each Snapshot to a file: `{"snapshot": …, "verdicts": […], "exhibits": […]}`.

    A line is handed to the system in one write, so a reader never sees half of one, and what other processes append
    stays. The file is opened for each line: it may be rotated or removed at any time.
    """

    name = "jsonl"
    title = "JSON lines"
    target = "PATH"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UsageError(f"sink jsonl needs a file, got the folder {str(self.path)!r}; name a file in it")
        if not self.path.absolute().parent.is_dir():
            raise UsageError(
                f"sink jsonl needs a file in a folder that exists, got {str(self.path)!r}; make the folder first"
            )

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Append one line."""
        entry = {
            "snapshot": snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in verdicts],
            "exhibits": [exhibit.to_json() for exhibit in exhibits],
        }
        line = memoryview((json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            while line:
                line = line[os.write(handle, line) :]
        finally:
            os.close(handle)
