"""The heart: many senders make one window; nothing acknowledged is lost; time is a clock that never jumps."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import Boundary, Histogram, InputError, Provenance, Snapshot, Space, UsageError
from embedwatch.daemon.heart import Draining, Full, Heart, HeartSettings, Unstorable
from embedwatch.daemon.own_report import SPACE
from embedwatch.daemon.store import FILE
from embedwatch.parcels import Parcel, parcel_of_batch, parcel_of_snapshot, parcel_of_window
from embedwatch.selection import Selection
from embedwatch.sinks.memory import Memory
from embedwatch.window import Window
from tests.polling import DEADLINE, poll

NEVER = 1e6
"""Seconds: the test closes windows itself."""
D = 16


@contextmanager
def beating(memory: Memory | None = None, clock: Callable[[], float] = time.time, **settings: Any) -> Iterator[Heart]:
    heart = Heart(
        HeartSettings(**{"interval": NEVER, **settings}), sinks=[] if memory is None else [(memory, False)], clock=clock
    )
    try:
        heart.start()
        yield heart
    finally:
        heart.close()


def rows(count: int = 100, *, dimension: int = D, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed))


def parcel(number: int, given: torch.Tensor | None = None, *, place: str = "p", sender: str = "w0") -> Parcel:
    given = rows(seed=number) if given is None else given
    return parcel_of_batch(
        VectorBatch(given), Space("m", place), role="vectors", sender=sender, number=number, time=1.7e9
    )


def state(given: torch.Tensor, *, sender: str, number: int = 0, place: str = "p", only: tuple[str, ...] = ()) -> Parcel:
    window = Window(Selection.live("vectors", only=only).made(Boundary())())
    window.update(VectorBatch(given))
    window.close(1.7e9)
    snapshot = window.snapshot(Space("m", place), role="vectors", step=7, coverage={"rows_expected": len(given)})
    return parcel_of_window(window, snapshot, sender=sender, number=number)


def numbers(memory: Memory, place: str = "p") -> list[dict[str, Any]]:
    """Return the values of each window of a place."""
    return [
        {measurement.name: measurement.value for measurement in snapshot if not measurement.labels}
        for snapshot, _, _ in memory.deliveries
        if snapshot.space.place == place
    ]


def sizes(memory: Memory, place: str = "p") -> list[int]:
    return [snapshot.provenance.rows for snapshot, _, _ in memory.deliveries if snapshot.space.place == place]


def test_states_of_four_senders_are_the_same_window_as_that_of_one() -> None:
    one, four = Memory(), Memory()
    whole = rows(400)
    with beating(one) as heart:
        heart.accept(state(whole, sender="alone"))
        heart.close_windows()
    with beating(four) as heart:
        for number, part in enumerate(whole.chunk(4)):
            heart.accept(state(part, sender=f"w{number}"))
        heart.close_windows()
        found = heart.space(Space("m", "p"))
    (alone,), (together,) = numbers(one), numbers(four)
    assert sizes(four) == [400]
    assert together.keys() == alone.keys()
    for name, value in alone.items():
        if isinstance(value, float):
            assert together[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
        elif isinstance(value, Histogram):
            assert (together[name].counts, together[name].n) == (value.counts, value.n), name
        else:
            assert together[name] == value, name
    assert found is not None
    assert found["snapshot"]["provenance"]["step"] == 7
    assert found["snapshot"]["provenance"]["coverage"] == {"rows_expected": 400}


def test_rows_of_many_parcels_are_one_window_and_a_repeated_one_counts_once() -> None:
    memory = Memory()
    with beating(memory) as heart:
        for number in (0, 1, 2, 1):
            heart.accept(parcel(number))
        heart.close_windows()
        assert heart.status()["parcels"]["accepted"] == 3
        assert heart.status()["parcels"]["repeated"] == 1
    assert sizes(memory) == [300]


def test_windows_close_by_themselves_and_whatever_the_wall_clock_does() -> None:
    memory, wall = Memory(), [1.7e9]
    with beating(memory, clock=lambda: wall[0], interval=0.2) as heart:
        heart.accept(parcel(0))
        poll(lambda: sizes(memory) == [100])
        wall[0] -= 86_400  # an operator corrects the date
        heart.accept(parcel(1))
        poll(lambda: sizes(memory) == [100, 100])
        wall[0] += 10 * 86_400
        heart.accept(parcel(2))
        poll(lambda: sizes(memory) == [100, 100, 100])
        assert heart.beating
        assert len(heart.spaces()) == 1, "nothing expired"


def test_a_wall_clock_that_jumps_closes_no_window_early() -> None:
    wall = [1.7e9]
    with beating(clock=lambda: wall[0]) as heart:
        heart.accept(parcel(0))
        wall[0] += 1e8
        poll(lambda: heart.spaces() != [] and heart.spaces()[0]["open_rows"] == 100)
        time.sleep(1.2)  # the clock of its own has looked at least once
        assert heart.spaces()[0]["open_rows"] == 100


def test_what_was_open_goes_on_after_a_restart_and_is_not_shown_as_fresh(tmp_path: Path) -> None:
    memory = Memory()
    with beating(storage=tmp_path) as heart:
        heart.accept(parcel(0))
        heart.close_windows()
        heart.accept(parcel(1))
        heart.accept(parcel(2, place="q"))
        assert heart.drain(DEADLINE)
    with beating(memory, storage=tmp_path) as heart:
        heart.accept(parcel(1))  # the sender did not hear the answer
        text = heart.exposition("text/plain", gzip=False)[0].decode()
        assert 'embedwatch_window_timestamp_seconds{model="m",place="p",segment="all"}' in text
        assert "embedwatch_effective_rank" not in text
        assert "embedwatch_check_failing" not in text
        found = {each["space"]["place"]: each for each in heart.spaces()}
        assert (found["p"]["open_rows"], found["p"]["rows"], found["p"]["fresh"]) == (100, 100, False)
        assert len(heart._keeping.accounts[Space("m", "p")].course.history) == 1
        heart.close_windows()
        text = heart.exposition("text/plain", gzip=False)[0].decode()
        assert 'embedwatch_window_rows{model="m",place="p",segment="all"} 100.0' in text
        assert heart.spaces()[0]["fresh"]
    assert sizes(memory) == sizes(memory, "q") == [100]


def test_a_verdict_keeps_its_date_over_windows_and_restarts(tmp_path: Path) -> None:
    collapsed = torch.ones(200, D)
    wall = [1000.0]

    def since(heart: Heart) -> dict[str, float]:
        return {each["check"]: each["since"] for each in heart.verdicts("fail") if each["space"]["place"] == "p"}

    with beating(clock=lambda: wall[0], storage=tmp_path) as heart:
        heart.accept(parcel(0, collapsed))
        heart.close_windows()
        first = since(heart)
        assert first
        assert set(first.values()) == {1000.0}
        wall[0] = 2000.0
        heart.accept(parcel(1, collapsed))
        heart.close_windows()
        assert since(heart) == first
    with beating(clock=lambda: wall[0], storage=tmp_path) as heart:
        assert since(heart) == first
        heart.accept(parcel(2))
        heart.close_windows()
        healthy = {each["check"]: each["since"] for each in heart.verdicts("ok") if each["check"] in first}
        assert set(healthy.values()) == {2000.0}


def test_strips_and_changes_of_the_page_go_on_after_a_restart(tmp_path: Path) -> None:
    wall = [1000.0]

    def told(heart: Heart) -> tuple[list[list[Any]], list[tuple[float, str, str | None]]]:
        (space,) = heart.spaces()
        turns = [each for each in heart.changes() if each["space"]["place"] == "p"]
        return space["statuses"], [(each["time"], each["check"], each["before"]) for each in turns]

    with beating(clock=lambda: wall[0], storage=tmp_path) as heart:
        for number, broken in enumerate((False, True)):
            wall[0] += 10
            heart.accept(parcel(number, torch.ones(200, D) if broken else rows(200)))
            heart.close_windows()
        before = told(heart)
    assert [time_ for time_, _ in before[0]] == [1010.0, 1020.0]
    assert before[0][1][1] == "fail"
    assert {time_ for time_, _, was in before[1] if was is not None} == {1020.0}
    with beating(clock=lambda: wall[0], storage=tmp_path) as heart:
        assert told(heart) == before
        wall[0] = 2000.0
        heart.accept(parcel(2))
        heart.close_windows()
        assert told(heart)[0][:2] == before[0]
    with beating(clock=lambda: wall[0], storage=tmp_path) as heart:
        statuses, turns = told(heart)
    assert [time_ for time_, _ in statuses] == [1010.0, 1020.0, 2000.0], "nothing twice, and nothing lost"
    assert turns[-len(before[1]) :] == before[1]
    assert {time_ for time_, _, was in turns if was == "fail"} == {2000.0}


def test_another_dimension_is_refused_counted_and_told() -> None:
    with beating() as heart:
        heart.accept(parcel(0))
        with pytest.raises(UsageError, match=f"must have {D} dimensions like those of its open window, got 8"):
            heart.accept(parcel(1, rows(dimension=8)))
        assert heart.status()["parcels"]["refused"]["dimension"] == 1
        assert heart.failures()[0]["reason"] == "dimension"
        heart.close_windows()
        heart.accept(parcel(1, rows(dimension=8)))
        heart.close_windows()
        assert heart.spaces()[0]["dimension"] == 8


def test_states_of_another_configuration_are_refused() -> None:
    with beating() as heart:
        heart.accept(state(rows(), sender="w0"))
        with pytest.raises(UsageError, match="one configuration on all senders"):
            heart.accept(state(rows(), sender="w1", only=("norms",)))
        heart.close_windows()
        heart.accept(state(rows(), sender="w1", number=1, only=("norms",)))


def test_rows_and_states_of_one_configuration_are_one_window() -> None:
    memory = Memory()
    with beating(memory) as heart:
        heart.accept(parcel(0))
        heart.accept(state(rows(seed=1), sender="w1"))
        heart.accept(parcel(1))
        heart.close_windows()
        assert [each for each in heart.failures() if each["reason"] == "exception"] == []
    assert sizes(memory) == [300]


def test_a_state_whose_payload_is_broken_is_refused_before_it_is_acknowledged() -> None:
    good = state(rows(), sender="w0")
    with beating() as heart:
        with pytest.raises(InputError):
            heart.accept(replace(good, payload=good.payload[:-10]))
        assert heart.status()["parcels"]["refused"]["unreadable"] == 1
        heart.accept(good)


def test_a_snapshot_is_judged_against_those_before_it() -> None:
    memory = Memory()
    with beating(memory) as heart:
        for number in range(3):
            snapshot = Snapshot(Space("m", "audit"), (), Provenance(1.7e9 + number, 5, step=number, role="table"))
            heart.accept(parcel_of_snapshot(snapshot, sender="w0", number=number))
        heart.close_windows()
        assert len(heart._keeping.accounts[Space("m", "audit")].course.history) == 3
    assert [s.provenance.step for s, _, _ in memory.deliveries if s.space.place == "audit"] == [0, 1, 2]


def test_ten_thousand_places_are_bounded_and_those_beyond_are_counted() -> None:
    given = [parcel(number, rows(4), place=f"p{number}") for number in range(200)]
    with beating(max_spaces=10) as heart:
        for each in given[:10]:
            heart.accept(each)
        for number in range(9_990):
            with pytest.raises(UsageError, match="at most 10 Spaces"):
                heart.accept(given[10 + number % 190])
        heart.close_windows()
        assert len(heart.spaces()) == 10
        assert heart.status()["parcels"]["refused"]["too_many_spaces"] == 9_990
        assert len(heart.failures()) <= 200
        text = heart.exposition("", gzip=False)[0].decode()
        (line,) = [line for line in text.splitlines() if 'reason="too_many_spaces"' in line]
        assert line.startswith("embedwatch_parcels_refused_total{")
        assert line.endswith(" 9990.0")


def test_a_space_that_is_silent_is_forgotten_and_makes_room(tmp_path: Path) -> None:
    now = [0.0]
    heart = Heart(HeartSettings(tmp_path, interval=NEVER, max_spaces=1, expires=10.0), ticks=lambda: now[0])
    heart.start()
    heart.accept(parcel(0))
    heart.close_windows()
    now[0] = 11.0
    heart.close_windows()
    assert heart.spaces() == []
    assert 'place="p"' not in heart.exposition("", gzip=False)[0].decode()
    heart.accept(parcel(1, place="q"))
    heart.close()
    with beating(storage=tmp_path) as again:
        assert [each["space"]["place"] for each in again.spaces()] == ["q"]


def test_what_does_not_fit_in_memory_is_refused_and_never_acknowledged() -> None:
    with beating(slot_bytes=30_000) as heart:
        evaluator = heart._evaluator
        assert evaluator is not None
        held = threading.Event()
        evaluator.put(lambda: poll(held.is_set))  # it is busy with something else
        taken = 0
        while heart._slots.size + len(parcel(taken).to_bytes()) <= 30_000:
            heart.accept(parcel(taken))
            taken += 1
        assert taken > 1
        with pytest.raises(Full) as caught:
            heart.accept(parcel(taken))
        assert caught.value.retry_after >= 1
        held.set()
        heart.close_windows()
        assert heart.spaces()[0]["rows"] == 100 * taken
        heart.accept(parcel(taken))


def test_a_full_disk_refuses_and_recovers(tmp_path: Path) -> None:
    memory = Memory()
    with beating(memory, storage=tmp_path) as heart:
        heart.accept(parcel(0))
        database = heart._keeping.store._database
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unstorable, match="full"):
            heart.accept(parcel(1, rows(20_000)))
        heart.close_windows()
        assert heart.beating
        assert heart.ready
        database.execute("PRAGMA max_page_count = 1000000")
        heart.accept(parcel(50))
        heart.close_windows()
        assert sum(sizes(memory)) == heart.status()["parcels"]["rows"]
    with beating(storage=tmp_path) as heart:
        assert heart.spaces()[0]["open_rows"] == 0, "all of it was saved when there was room"


def test_a_damaged_state_is_a_finding_and_no_end(tmp_path: Path) -> None:
    with beating(storage=tmp_path) as heart:
        heart.accept(parcel(0))
    (tmp_path / FILE).write_bytes(b"damage" * 1000)
    for _ in range(2):
        with beating(storage=tmp_path) as heart:
            assert heart.ready
            heart.accept(parcel(1, sender="again"))
            heart.close_windows()
            own = heart.space(SPACE)
            assert own is not None
            found = [each["check"] for each in own["verdicts"] if each["status"] != "ok"]
            assert ("own_errors" in found) == heart.status()["state"]["damaged"]
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_a_parcel_that_cannot_be_read_any_more_is_counted_and_leaves(tmp_path: Path) -> None:
    with beating(storage=tmp_path) as heart:
        heart.accept(parcel(0))
        heart.close_windows()
    with sqlite3.connect(tmp_path / FILE) as database:
        broken = "INSERT INTO inbox (space, parcel) SELECT space, x'00' FROM snapshots WHERE space LIKE '%\"p\"%'"
        database.execute(broken)
    database.close()
    with beating(storage=tmp_path) as heart:
        assert heart.status()["state"]["unrestored"] == 1
        heart.close_windows()
    with beating(storage=tmp_path) as heart:
        assert heart.status()["state"]["unrestored"] == 0


def test_draining_takes_nothing_more_and_without_storage_judges_what_was_taken() -> None:
    memory = Memory()
    with beating(memory) as heart:
        for number in range(5):
            heart.accept(parcel(number))
        assert heart.drain(DEADLINE)
        assert not heart.ready
        with pytest.raises(Draining, match="starts or ends"):
            heart.accept(parcel(9))
    assert sizes(memory) == [500]


def test_before_the_start_nothing_is_taken() -> None:
    heart = Heart(HeartSettings())
    assert (heart.ready, heart.beating) == (False, False)
    with pytest.raises(Draining):
        heart.accept(parcel(0))
    heart.close()
    heart.close()


def test_the_evaluator_that_ended_is_no_heartbeat() -> None:
    with beating() as heart:
        assert heart.beating
        assert heart._evaluator is not None
        heart._evaluator.close()
        assert not heart.beating


def test_nobody_else_reports_on_the_daemon() -> None:
    with beating() as heart, pytest.raises(UsageError, match="the daemon's own"):
        heart.accept(replace(parcel(0), space=SPACE))


@pytest.mark.parametrize("setting", ["interval", "pending_bytes", "slot_bytes", "max_spaces", "expires"])
def test_settings_are_above_zero(setting: str) -> None:
    with pytest.raises(UsageError, match=f"`{setting}` must be above 0, got 0"):
        HeartSettings(**{setting: 0})  # type: ignore[arg-type]
