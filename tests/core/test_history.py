"""History."""

from __future__ import annotations

from itertools import pairwise

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


@pytest.mark.parametrize("capacity", [2, 3, 4, 7, 8, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9, 64, 65, 1000])
def test_an_even_choice_goes_from_the_first_to_the_newest(capacity: int, count: int) -> None:
    history = History((snap(t, t) for t in range(count)), capacity=capacity, keep="even")
    times = [int(s.provenance.time) for s in history]
    assert min(count, -(-capacity // 2)) <= len(history) <= capacity
    if count:
        assert (times[0], times[-1]) == (0, count - 1)
    distances = {late - early for early, late in pairwise(times[:-1])}
    assert len(distances) <= 1  # even, but for the newest
    assert all(distance & (distance - 1) == 0 for distance in distances)  # a power of two
    assert all(times[-1] - times[-2] <= distance for distance in distances)


def test_refuses_a_choice_that_it_does_not_know() -> None:
    with pytest.raises(UsageError, match="newest, even, got 'oldest'"):
        History(keep="oldest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 2, got 1"):
        History(capacity=1, keep="even")


def test_refuses_to_keep_nothing() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        History(capacity=0)


def test_the_newest_are_there_without_gaps_whatever_is_kept() -> None:
    for keep in ("newest", "even"):
        history = History((snap(float(t), t) for t in range(300)), capacity=60, keep=keep)  # type: ignore[arg-type]
        assert [each.provenance.time for each in history.recent()] == [float(t) for t in range(250, 300)]
    assert [each.provenance.time for each in History([snap(1.0, 1)]).recent()] == [1.0]
