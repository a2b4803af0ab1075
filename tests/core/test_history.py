"""History."""

from __future__ import annotations

import pytest

from embedwatch.core import History, Metric, Provenance, Snapshot, Space, UsageError

LOSS = Metric("loss", "Loss.")
BY_GROUP = Metric("cohesion", "Mean cosine within a group.", labels=("group",))


def snap(time: float, value: float | None, step: int | None = None) -> Snapshot:
    measurements = (LOSS.measure(value), BY_GROUP.measure(value, group="a"), BY_GROUP.measure(7.0, group="b"))
    return Snapshot(Space("m", "p"), measurements, Provenance(time=time, rows=1, step=step))


def test_keeps_the_newest() -> None:
    history = History((snap(t, t) for t in range(5)), capacity=3)
    history.append(snap(5, 5))
    assert len(history) == 3
    assert [s.provenance.time for s in history] == [3, 4, 5]


def test_a_series_goes_by_step_where_there_is_one_and_by_time_elsewhere() -> None:
    assert History([snap(10.0, 1.0, step=100), snap(20.0, 2.0, step=200)]).series("loss") == [(100, 1.0), (200, 2.0)]
    assert History([snap(10.0, 1.0), snap(20.0, 2.0)]).series("loss") == [(10.0, 1.0), (20.0, 2.0)]


def test_step_zero_is_a_step() -> None:
    assert History([snap(10.0, 1.0, step=0)]).series("loss") == [(0.0, 1.0)]


def test_a_series_leaves_gaps_out_and_follows_labels() -> None:
    history = History([snap(1, 1.0), snap(2, None), snap(3, 3.0)])
    assert history.series("loss") == [(1, 1.0), (3, 3.0)]
    assert history.series("cohesion", group="a") == [(1, 1.0), (3, 3.0)]
    assert history.series("cohesion", group="b") == [(1, 7.0), (2, 7.0), (3, 7.0)]
    assert history.series("nothing") == []


def test_refuses_to_keep_nothing() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        History(capacity=0)
