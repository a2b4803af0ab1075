"""What a drill says of its repeats."""

from __future__ import annotations

import json

import pytest

from embedwatch.drills.results import CONTROL, Drill, Outcome, Trial, TrialStatus


def outcome(status: TrialStatus, *fired: tuple[str, int], seed: int = 0, told: str = "", reason: str = "") -> Outcome:
    rows = min((count for _, count in fired), default=1_000)
    noticed = (("drift", 500),) if status == "noticed" else ()
    return Outcome(seed, rows, fired, bool(fired), status, noticed, told, reason)


def trial(*outcomes: Outcome, fault: str = "rotation") -> Trial:
    return Trial(fault, "the space turns", 5.0, "5 degrees", ("drift",), outcomes)


FOUND, MISSED = outcome("found", ("drift", 200)), outcome("missed", reason="Chance.")
NOTICED = outcome("noticed", reason="Too small.")


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ([FOUND], "found"),
        ([FOUND] * 19 + [MISSED], "found"),
        ([FOUND] * 18 + [MISSED] * 2, "missed"),
        ([FOUND] * 10 + [NOTICED] * 10, "noticed"),
        ([FOUND] * 8 + [NOTICED] * 10 + [MISSED] * 2, "missed"),
        ([outcome("blind")], "blind"),
        ([outcome("impossible")], "impossible"),
    ],
)
def test_nearly_all_repeats_must_find_it(outcomes: list[Outcome], status: str) -> None:
    assert trial(*outcomes).status == status


def test_healthy_rows_may_fire_once_in_twenty() -> None:
    ok, fired = outcome("ok"), outcome("fired", ("drift", 100))
    assert trial(*[ok] * 19, fired, fault=CONTROL).status == "ok"
    assert trial(*[ok] * 9, fired, fault=CONTROL).status == "fired"
    assert trial(outcome("unknown"), fault=CONTROL).status == "unknown"


def test_counts_rows_and_names() -> None:
    found = trial(
        outcome("found", ("drift", 100), ("canary", 100), told="Turned."), outcome("found", ("drift", 500)), MISSED
    )
    assert (found.hits, found.rightly, found.rows, found.rows_of("drift"), found.rows_of("norms")) == (
        2,
        2,
        300,
        300,
        None,
    )
    assert found.checks() == {"drift": 2, "canary": 1}
    assert found.names() == {"Turned.": 1}
    assert found.reason() == "Chance."
    assert trial(NOTICED, FOUND).noticed == 2


def drilled(control: Trial, *trials: Trial) -> Drill:
    return Drill("a.npy", "ab", 8, 900, 500, 200, 10, 1.0, 0.001, control, trials, ("drift",), (), (), 1.0)


def test_the_status_of_healthy_rows_goes_first_and_json_is_plain() -> None:
    healthy = trial(outcome("ok"), fault=CONTROL)
    assert drilled(healthy, trial(FOUND)).status == "ok"
    assert drilled(healthy, trial(FOUND), trial(MISSED), trial(NOTICED)).status == "missed"
    assert drilled(healthy, trial(NOTICED), trial(outcome("blind"))).status == "ok"
    assert drilled(trial(outcome("fired", ("drift", 100)), fault=CONTROL), trial(MISSED)).status == "fired"
    data = json.loads(json.dumps(drilled(healthy, trial(FOUND), trial(MISSED)).to_json()))
    assert data["counts"] == {"found": 1, "missed": 1}
    assert data["trials"][0]["outcomes"][0]["fired"] == {"drift": 200}
