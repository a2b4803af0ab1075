"""Where a measurement stood early in a course."""

from __future__ import annotations

import pytest

from embedwatch.core import History, Metric, Provenance, Snapshot, Space
from embedwatch.core.levels import earlier_values, early_level

NUMBER = Metric("number", "A number.", labels=("head",))


def snap(step: int | None, value: float | None) -> Snapshot:
    measured = (NUMBER.measure(value, head="mean"), NUMBER.measure(-1.0, head="max"))
    return Snapshot(Space("m", "p"), measured, Provenance(time=0.0, rows=10, step=step))


def level(values: list[float | None], *, since: int = 0) -> float | None:
    snapshots = [snap(10 * place, value) for place, value in enumerate(values)]
    return early_level(History(snapshots), snapshots[-1], "number", since=since, head="mean")


def test_it_is_the_median_of_the_first_quarter_before_the_snapshot() -> None:
    assert level([float(place) for place in range(41)]) == pytest.approx(4.5)
    assert level([5.0, 1.0, 2.0, 3.0, 90.0, 7.0]) == 3.0


def test_a_few_windows_and_windows_without_a_value_are_no_past() -> None:
    assert level([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert level([1.0, 2.0, None, 3.0, 4.0, 5.0]) is None
    assert early_level(None, snap(1, 1.0), "number", head="mean") is None


def test_only_windows_from_a_step_on_count_where_steps_are_known() -> None:
    values: list[float | None] = [float(place) for place in range(12)]
    assert level(values, since=50) == 7.0
    assert level(values, since=80) is None
    unknown = [snap(None, float(place)) for place in range(6)]
    assert early_level(History(unknown), unknown[-1], "number", since=50, head="mean") == 2.0


def test_what_a_resumed_run_goes_over_again_is_left_out() -> None:
    history = History([snap(step, float(step)) for step in (0, 10, 20, 30, 10, 20)])
    assert earlier_values(history, snap(20, 0.0), "number", head="mean") == [0.0, 10.0, 10.0]
