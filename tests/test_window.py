"""Windows: swapped, kept in a ring, merged; a failing Statistic takes nobody with it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import Boundary, Space, Statistic, UsageError
from embedwatch.core.registry import registered
from embedwatch.sketches import example_batches
from embedwatch.window import Window, Windows


def statistics() -> list[Statistic[Any]]:
    return [cls() for cls in registered(Statistic).values() if not cls.needs_reference]  # type: ignore[type-abstract]


def values(window: Window) -> dict[str, Any]:
    return {measurement.key: measurement.number for measurement in window.measurements()}


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == (value if value is None else pytest.approx(value, rel=1e-4, abs=1e-6)), key


def test_longer_windows_are_merges_of_shorter_ones() -> None:
    windows = Windows(statistics, clock=iter(range(100)).__next__)
    whole = Window(statistics())
    for batch in example_batches(0):
        windows.update(batch)
        windows.flush()
        whole.update(batch)
    merged = windows.last(10)
    assert merged is not None
    assert merged.rows == whole.rows
    assert_close(values(merged), values(whole))


def test_the_ring_is_bounded_and_keeps_the_newest() -> None:
    windows = Windows(statistics, ring=2)
    for batch in example_batches(0):
        windows.update(batch)
        windows.flush()
    assert len(windows) == 2
    merged = windows.last(99)
    assert merged is not None
    assert merged.rows == 42


def test_an_empty_window_is_not_closed() -> None:
    windows = Windows(statistics)
    assert windows.flush() is None
    assert windows.last(1) is None
    assert len(windows) == 0


def test_merging_leaves_the_closed_windows_alone() -> None:
    windows = Windows(statistics)
    windows.update(example_batches(0)[0])
    closed = windows.flush()
    assert closed is not None
    before = values(closed)
    windows.update(example_batches(0)[2])
    windows.flush()
    windows.last(2)
    assert values(closed) == before


def test_no_row_is_lost_or_counted_twice_between_threads() -> None:
    windows = Windows(lambda: [registered(Statistic)["validity"]()], ring=10_000)  # type: ignore[type-abstract]
    batch = VectorBatch(torch.ones(3, 2))
    stop = threading.Event()

    def feed() -> None:
        for _ in range(300):
            windows.update(batch)

    def swap() -> None:
        while not stop.is_set():
            windows.flush()

    feeders = [threading.Thread(target=feed) for _ in range(4)]
    swapper = threading.Thread(target=swap)
    for thread in [swapper, *feeders]:
        thread.start()
    for thread in feeders:
        thread.join()
    stop.set()
    swapper.join()
    windows.flush()
    merged = windows.last(10_000)
    assert merged is not None
    assert values(merged)["rows"] == merged.rows == 4 * 300 * 3


class Raising(registered(Statistic)["validity"], register=False):  # type: ignore[misc, type-abstract]
    """Raises at the second batch."""

    name = "raising"

    def add(self, batch: VectorBatch) -> None:
        if self._counts["rows"] > 0:
            raise ZeroDivisionError("planted")
        super().add(batch)


def with_a_raising_one() -> Sequence[Statistic[Any]]:
    return [Raising(), registered(Statistic)["validity"]()]  # type: ignore[type-abstract]


def test_a_raising_statistic_is_counted_logged_once_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    boundary = Boundary(patience=2)
    windows = Windows(with_a_raising_one, boundary=boundary)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            for batch in example_batches(0):
                windows.update(batch)
            window = windows.flush()
            assert window is not None
            assert values(window)["rows"] == 66  # the sound one saw every row, and nobody mixed the two up
    assert boundary.errors == {("statistic", "raising"): 2}  # once a window, then switched off
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_in_tests_exceptions_go_through() -> None:
    window = Window(with_a_raising_one(), boundary=Boundary(on_error="raise"))
    first, second, *_ = example_batches(0)
    window.update(first)
    with pytest.raises(ZeroDivisionError):
        window.update(second)


def test_a_snapshot_says_where_it_comes_from() -> None:
    window = Window(statistics(), started=1.0)
    window.update(example_batches(0)[0])
    window.ended = 2.0
    snapshot = window.snapshot(Space("m", "p"), step=7, fingerprint="ab", coverage={"places": 1}, notes=["said"])
    provenance = snapshot.provenance
    assert (provenance.time, provenance.rows, provenance.dimension, provenance.step) == (2.0, 23, 7, 7)
    assert provenance.versions["torch"]
    assert provenance.notes == ("said",)


def test_windows_of_other_statistics_do_not_merge() -> None:
    with pytest.raises(UsageError, match="must hold the statistics"):
        Window(statistics()).merge(Window([]))
    with pytest.raises(UsageError, match="got 0"):
        Windows(statistics, ring=0)


def test_a_batch_of_another_dimension_is_refused_whole_and_the_rest_goes_on() -> None:
    boundary = Boundary()
    window = Window(statistics(), boundary=boundary)
    first, *_ = example_batches(0)
    other, *_ = example_batches(0, dimension=9)
    window.update(first)
    window.update(other)
    window.update(first.take(slice(0, 0)))
    assert boundary.errors == {("window", "dimension"): 1}
    assert (window.rows, window.dimension, window.failed) == (23, 7, set())
    assert values(window)["rows"] == 23


def test_windows_since_a_change_of_dimension_are_merged_and_no_others() -> None:
    windows = Windows(statistics)
    for dimension in (7, 7, 9, 9):
        windows.update(example_batches(0, dimension=dimension)[0])
        windows.flush()
    merged = windows.last(4)
    assert merged is not None
    assert (merged.rows, merged.dimension) == (46, 9)


def test_a_merge_carries_what_failed_when_it_began_and_its_dimension() -> None:
    failed, sound = Window(with_a_raising_one(), started=5.0), Window(with_a_raising_one(), started=9.0)
    for batch in example_batches(0):
        failed.update(batch)
    sound.merge(failed)
    assert sound.failed == {"raising"}
    assert (sound.started, sound.dimension) == (5.0, 7)


def test_what_failed_is_measured_as_missing_not_left_out() -> None:
    window = Window([Raising()])
    for batch in example_batches(0):
        window.update(batch)
    found = {measurement.name: measurement.value for measurement in window.measurements()}
    assert found == {metric.name: None for metric in Raising.metrics}


def test_one_closed_window_may_be_read_by_many_threads() -> None:
    windows = Windows(statistics)
    for batch in example_batches(0, dimension=16, sizes=(400, 300, 200)):
        windows.update(batch)
    closed = windows.flush()
    assert closed is not None
    found: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: found.append(values(closed))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(one == found[0] for one in found)
