"""Boundary: the watched model never stops because of us."""

from __future__ import annotations

import logging
import threading

import pytest

from embedwatch.core import Boundary


def fail(boundary: Boundary, name: str = "norms", error: BaseException | None = None) -> None:
    with boundary.guard("statistic", name):
        raise error or ValueError("bad rows")


def test_counts_and_swallows() -> None:
    boundary = Boundary()
    fail(boundary)
    fail(boundary)
    fail(boundary, "spectrum")
    assert boundary.errors == {("statistic", "norms"): 2, ("statistic", "spectrum"): 1}


def test_what_does_not_fail_is_not_counted() -> None:
    boundary = Boundary()
    with boundary.guard("statistic", "norms"):
        pass
    assert boundary.errors == {}


def test_logs_once_with_traceback_then_once_when_it_switches_off(caplog: pytest.LogCaptureFixture) -> None:
    boundary = Boundary(patience=3)
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert not boundary.is_off("statistic", "norms")
            fail(boundary)
    assert boundary.is_off("statistic", "norms")
    first, last = caplog.records
    assert first.exc_info is not None
    assert "bad rows" in caplog.text
    assert "in a row" in last.getMessage()


def test_one_item_off_leaves_the_others_on() -> None:
    boundary = Boundary(patience=1)
    fail(boundary)
    assert boundary.is_off("statistic", "norms")
    assert not boundary.is_off("statistic", "spectrum")
    assert not boundary.is_off("check", "norms")


def test_raise_lets_it_through_after_counting(caplog: pytest.LogCaptureFixture) -> None:
    boundary = Boundary(on_error="raise")
    with pytest.raises(ValueError, match="bad rows"):
        fail(boundary)
    assert boundary.errors == {("statistic", "norms"): 1}
    assert not caplog.records


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_never_swallows_a_request_to_stop(error: BaseException) -> None:
    boundary = Boundary()
    with pytest.raises(type(error)):
        fail(boundary, error=error)
    assert boundary.errors == {}


def test_asking_does_not_count() -> None:
    boundary = Boundary()
    boundary.is_off("statistic", "norms")
    assert boundary.errors == {}


def test_counts_right_from_many_threads(caplog: pytest.LogCaptureFixture) -> None:
    boundary = Boundary(patience=10_000)

    def many() -> None:
        for _ in range(200):
            fail(boundary)

    with caplog.at_level(logging.CRITICAL):
        threads = [threading.Thread(target=many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert boundary.errors == {("statistic", "norms"): 1600}
