"""Writes findings to Python's log when they come, and when they go."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot, Space
from embedwatch.core.verdict import Status, Verdict

log = logging.getLogger("embedwatch")
LEVELS = {"warn": logging.WARNING, "fail": logging.ERROR}


class Log(Sink):
    """Logs a verdict when its status becomes `warn` or `fail`, and when it recovers; nothing while it stays."""

    name = "log"
    title = "log"

    def __init__(self) -> None:
        self._known: dict[tuple[Space, str], Status] = {}

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Log what has changed."""
        del exhibits
        step = "" if snapshot.provenance.step is None else f" at step {snapshot.provenance.step:,}"
        for verdict in verdicts:
            key = (verdict.space, verdict.check)
            before, self._known[key] = self._known.get(key, "ok"), verdict.status
            if verdict.status == before or verdict.status == "unknown":
                self._known[key] = before  # not enough data is no news
            elif verdict.status in LEVELS:
                log.log(LEVELS[verdict.status], "%s", f"{verdict.space}{step}: {described(verdict)}")
            else:
                log.info("%s", f"{verdict.space}{step}: ok: {verdict.title} has recovered")


def described(verdict: Verdict) -> str:
    """Return a verdict in one line: status, what is wrong with its numbers, why it matters, what to do."""
    parts = [f"{verdict.status}: {verdict.title}: {verdict.reason}", verdict.meaning]
    return " ".join(part for part in parts if part) + (f" → {verdict.remedy}" if verdict.remedy else "")
