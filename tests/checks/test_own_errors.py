"""What the finding about errors of our own says."""

from __future__ import annotations

import pytest

from embedwatch.checks.own_errors import OwnErrors
from embedwatch.core import Metric, Provenance, Snapshot, Space
from embedwatch.judging import Judge

ERRORS = Metric("errors_total", "Exceptions.", kind="counter", labels=("component", "part"))
OFF, SECONDS = (
    Metric("parts_off", "Parts that are off."),
    Metric("watch_seconds_total", "Time spent.", "seconds", kind="counter"),
)


@pytest.mark.parametrize(
    ("off", "words"),
    [
        (0, "Failed: sink log (12)."),
        (1, "Failed: sink log (12). Off after many failures: 1 part."),
        (2, "Failed: sink log (12). Off after many failures: 2 parts."),
    ],
)
def test_the_reason_counts_what_is_off(off: int, words: str) -> None:
    measurements = (ERRORS.measure(12, component="sink", part="log"), OFF.measure(off), SECONDS.measure(1.0))
    snapshot = Snapshot(Space("m", "monitor"), measurements, Provenance(time=0.0, rows=1, role="watching"))
    (verdict,) = Judge([OwnErrors()]).judge(snapshot)
    assert (verdict.status, verdict.reason) == ("warn", words)
