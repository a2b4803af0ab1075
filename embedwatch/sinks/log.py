"""Writes findings to Python's log when they come, and when they go."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from embedwatch.core.changes import Changes
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._blame import blamed, known_rows

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
        by_name = known_rows(snapshot, exhibits)
        step = "" if snapshot.provenance.step is None else f" at step {snapshot.provenance.step:,}"
        for verdict in self._changes.among(verdicts):
            if verdict.status in LEVELS:
                log.log(LEVELS[verdict.status], "%s", f"{verdict.space}{step}: {described(verdict, by_name)}")
            else:
                log.info("%s", f"{verdict.space}{step}: ok: {verdict.title} has recovered")
        self._changes.note(verdicts)


def described(verdict: Verdict, exhibits: Mapping[str, Exhibit]) -> str:
    """Return a verdict in one line: status, what is wrong with its numbers, whom to blame, why it matters, what to do.

    Example:
        >>> from embedwatch.core import Evidence, Space
        >>> rows = Exhibit.build("norms", "table", "Largest.", ("row", "name", "norm"), [(7, "the", 90.0)])
        >>> verdict = Verdict(
        ...     "extreme_norms", "lengths of rows", Space("m", "token_table"), "fail",
        ...     Evidence(90.0, None, 9, exhibits=("norms",)), None, "One row is long.", "", "Shorten it.",
        ... )
        >>> described(verdict, {"norms": rows})
        'fail: lengths of rows: One row is long. Rows 7 “the” (norm 90). → Shorten it.'
    """
    rows = [f"{text[0].upper()}{text[1:]}." for text in blamed(verdict.evidence.exhibits, exhibits)]
    parts = [f"{verdict.status}: {verdict.title}: {verdict.reason}", *rows, verdict.meaning]
    return " ".join(part for part in parts if part) + (f" → {verdict.remedy}" if verdict.remedy else "")
