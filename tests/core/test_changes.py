"""What is news among verdicts, and that the log sink tells just that."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from embedwatch.core.changes import Changes
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.core.verdict import Evidence, Status, Verdict
from embedwatch.sinks.log import Log


def verdict(status: Status, *, place: str = "table", check: str = "zero_rows") -> Verdict:
    return Verdict(check, "zero rows", Space("m", place), status, Evidence(1.0), None, "1 row.", "", "")


@pytest.mark.parametrize(
    ("course", "told"),
    [
        ("ok ok", ""),
        ("unknown ok", ""),
        ("warn warn warn", "warn"),
        ("warn unknown warn", "warn"),
        ("warn unknown ok", "warn ok"),
        ("warn fail warn", "warn fail warn"),
        ("fail ok fail", "fail ok fail"),
    ],
)
def test_a_change_is_told_once(course: Any, told: str) -> None:
    changes, found = Changes(), []
    for status in course.split():
        found += [each.status for each in changes.among([verdict(status)])]
        changes.note([verdict(status)])
    assert found == told.split()


def test_places_and_checks_are_kept_apart() -> None:
    changes = Changes()
    changes.note([verdict("warn")])
    others = [verdict("warn", place="other"), verdict("warn", check="dead")]
    assert changes.among([*others, verdict("warn")]) == others


def test_asking_is_not_noting() -> None:
    changes = Changes()
    assert changes.among([verdict("fail")]) == changes.among([verdict("fail")]) != []


def test_the_log_tells_changes_with_their_step(caplog: pytest.LogCaptureFixture) -> None:
    sink = Log()
    course: tuple[Status, ...] = ("ok", "warn", "warn", "fail", "unknown", "ok")
    with caplog.at_level(logging.INFO, "embedwatch"):
        for step, status in enumerate(course):
            snapshot = Snapshot(Space("m", "table"), (), Provenance(0.0, 1, step=step))
            sink.write(snapshot, [verdict(status)])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "m/table at step 1: warn: zero rows: 1 row."),
        ("ERROR", "m/table at step 3: fail: zero rows: 1 row."),
        ("INFO", "m/table at step 5: ok: zero rows has recovered"),
    ]
