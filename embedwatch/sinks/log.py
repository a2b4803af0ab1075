"""Writes findings to Python's log when they come, and when they go."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from embedwatch.core.changes import Changes
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

log = logging.getLogger("embedwatch")
LEVELS = {"warn": logging.WARNING, "fail": logging.ERROR}


class Log(Sink):
    """Logs a verdict when its status becomes `warn` or `fail`, and when it recovers; nothing while it stays."""

    name = "log"
    title = "log"

    def __init__(self) -> None:
        self._changes = Changes()

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Log what has changed."""
        del exhibits
        step = "" if snapshot.provenance.step is None else f" at step {snapshot.provenance.step:,}"
        for verdict in self._changes.among(verdicts):
            if verdict.status in LEVELS:
                log.log(LEVELS[verdict.status], "%s", f"{verdict.space}{step}: {described(verdict)}")
            else:
                log.info("%s", f"{verdict.space}{step}: ok: {verdict.title} has recovered")
        self._changes.note(verdicts)


def described(verdict: Verdict) -> str:
    """Return a verdict in one line: status, what is wrong with its numbers, why it matters, what to do."""
    parts = [f"{verdict.status}: {verdict.title}: {verdict.reason}", verdict.meaning]
    return " ".join(part for part in parts if part) + (f" → {verdict.remedy}" if verdict.remedy else "")
