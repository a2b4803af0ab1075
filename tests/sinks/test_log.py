"""The log tells of a finding once, with the rows to blame where their numbers lead somewhere."""

from __future__ import annotations

import logging

import pytest

from embedwatch.core import Evidence, Exhibit, Provenance, Snapshot, Space, Verdict
from embedwatch.core.verdict import Status
from embedwatch.sinks.log import Log

LIVE = {"places_expected": 5, "places_seen": 5}


def delivered(sink: Log, role: str, exhibit: Exhibit, status: Status = "fail") -> None:
    space = Space("m", "place")
    snapshot = Snapshot(space, (), Provenance(0.0, 9, step=1200, role=role, coverage=LIVE))
    evidence = Evidence(9.0, None, 9, exhibits=("guilty",))
    verdict = Verdict("extreme_norms", "lengths", space, status, evidence, None, "Too long.", "It matters.", "Act.")
    sink.write(snapshot, [verdict], [exhibit])


def rows(*cells: tuple[object, ...], columns: tuple[str, ...] = ("row", "norm")) -> Exhibit:
    return Exhibit.build("guilty", "table", "Rows.", columns, cells)  # type: ignore[arg-type]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="embedwatch")
    return caplog


def test_tokens_are_named_with_their_rows(told: pytest.LogCaptureFixture) -> None:
    delivered(Log(), "table", rows((613, "ure", 9.5), (7, "the\n", 8.0), columns=("row", "name", "norm")))
    assert told.messages == [
        "m/place at step 1,200: fail: lengths: Too long. Rows 613 “ure” (norm 9.5), 7 “the ” (8). It matters. → Act."
    ]


def test_rows_of_a_table_without_names_have_their_numbers(told: pytest.LogCaptureFixture) -> None:
    delivered(Log(), "tokens", rows((613, 9.5)))
    assert "Rows 613 (norm 9.5)." in told.messages[0]


@pytest.mark.parametrize("forward", [0, 1, 40])
def test_numbers_of_what_a_module_puts_out_are_not_told(told: pytest.LogCaptureFixture, forward: int) -> None:
    delivered(Log(), "layer", rows(((forward << 24) + 3, 9.5)))
    assert told.messages == ["m/place at step 1,200: fail: lengths: Too long. It matters. → Act."]


def test_dimensions_of_what_a_module_puts_out_are_told(told: pytest.LogCaptureFixture) -> None:
    delivered(Log(), "layer", rows((3, 0.5), columns=("dimension", "share")))
    assert "Dimensions 3 (share 0.5)." in told.messages[0]


def test_once_while_it_lasts_and_its_end(told: pytest.LogCaptureFixture) -> None:
    sink = Log()
    for status in ("fail", "fail", "ok", "ok"):
        delivered(sink, "table", rows((1, 9.5)), status)
    assert [record.levelname for record in told.records] == ["ERROR", "INFO"]
    assert told.messages[1] == "m/place at step 1,200: ok: lengths has recovered"
