"""Evidence becomes verdicts: limits, not enough data, checks that fail."""

from __future__ import annotations

from typing import Any

import pytest

from embedwatch.core import (
    Boundary,
    Check,
    Evidence,
    History,
    Limit,
    Metric,
    Provenance,
    Snapshot,
    Space,
    ThresholdCheck,
)
from embedwatch.judging import Judge

NUMBER = Metric("some_number", "A number.")


def snapshot(value: float | None, *, rows: int = 100) -> Snapshot:
    return Snapshot(Space("m", "p"), (NUMBER.measure(value),), Provenance(0.0, rows, 4))


class Some(ThresholdCheck, register=False):
    """A number is small."""

    name = "some"
    title = "some number"
    metric = "some_number"
    limit = Limit(warn=1.0, fail=2.0)
    meaning = "It is large."
    impact = "It costs."
    diagnosis = "Look."
    mitigation = "Make it small."


class Raising(Some, register=False):
    """Raises."""

    name = "raising"

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        raise KeyError("planted")


@pytest.mark.parametrize(
    ("value", "status", "threshold"), [(0.5, "ok", 1.0), (1.0, "warn", 1.0), (1.5, "warn", 1.0), (2.0, "fail", 2.0)]
)
def test_limits(value: float, status: str, threshold: float) -> None:
    (verdict,) = Judge([Some()]).judge(snapshot(value))
    assert (verdict.status, verdict.threshold) == (status, threshold)
    assert bool(verdict.remedy) == (status in ("warn", "fail"))
    assert verdict.evidence.measurement == "some_number"


def test_not_enough_data_is_unknown() -> None:
    (verdict,) = Judge([Some()]).judge(snapshot(None))
    assert verdict.status == "unknown"
    assert verdict.threshold is None


def test_a_check_is_not_asked_what_the_snapshot_does_not_hold() -> None:
    assert Judge([Some()]).judge(Snapshot(Space("m", "p"), (), Provenance(0.0, 5))) == []


def test_a_raising_check_is_unknown_and_the_others_are_asked() -> None:
    boundary = Boundary(patience=2)
    judge = Judge([Raising(), Some()], boundary=boundary)
    for _ in range(4):
        raising, sound = judge.judge(snapshot(0.0))
        assert (raising.status, sound.status) == ("unknown", "ok")
    assert boundary.errors == {("check", "raising"): 2}
    assert "off" in raising.reason


def test_nan_is_no_evidence() -> None:
    class Confused(Some, register=False):
        """Finds NaN."""

        def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
            return Evidence(float("nan"), self.limit)

    (verdict,) = Judge([Confused()]).judge(snapshot(0.0))
    assert verdict.status == "unknown"


def test_a_verdict_as_json_names_value_limit_reason_and_remedy() -> None:
    (verdict,) = Judge([Some()]).judge(snapshot(3.0))
    data = verdict.to_json()
    assert data["status"] == "fail"
    assert (data["value"], data["threshold"], data["healthy"]) == (3.0, 2.0, "< 1")
    assert data["remedy"] == "Make it small."
    assert data["space"] == {"model": "m", "place": "p", "segment": "all"}
    assert all(isinstance(check, type) and issubclass(check, Check) for check in (Some, Raising))
