"""What the daemon stands: hostile bodies, slow clients, damage to its state, a full disk, clocks that jump, many names.

Most tests serve from a thread; the slow ones run `embedwatch serve`. `benchmarks/reliability.py` measures the same.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Space
from embedwatch.course_maker import CourseMaker
from embedwatch.daemon.heart import Full, Heart, HeartSettings
from embedwatch.daemon.maps import MapRows
from embedwatch.daemon.state_log import FRAME, HEADER, hides_transactions
from embedwatch.daemon.store import FILE, Delivery, Store
from embedwatch.parcels import Parcel, parcel_of_batch, parcel_of_window
from embedwatch.window import Window
from tests.daemon.damage import DAMAGES
from tests.daemon.hostile import ATTACKS
from tests.daemon.serve_process import ServeProcess, faked_clock
from tests.daemon.serving import Served, ask, npy, raw, send, serving, until
from tests.polling import poll

PARCEL = "application/vnd.embedwatch.parcel"
LARGEST_EXACT = 1_536
"""D up to which covariances are kept whole: the largest states."""
SLOW_CLIENTS = 40
FULL_HISTORY = 220
"""Windows after which a Space keeps no more Snapshots."""
MOST_GROWTH = 24 << 20
"""Bytes that the allocator may come to keep."""
PATIENCE = 300.0
HALF_BODY = (
    b"POST /api/v1/ingest/m/p HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\nContent-Length: 9000\r\n\r\nab"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("reliability")) as found:
        yield found


def state(dimension: int, *, number: int = 0, place: str = "p") -> Parcel:
    """Return the full default statistics of a window."""
    window = Window(CourseMaker().statistics("pooled"))
    window.update(VectorBatch(torch.randn(300, dimension, generator=torch.Generator().manual_seed(number))))
    window.close(5.0)
    return parcel_of_window(window, window.snapshot(Space("m", place)), sender="s", number=number)


def batch(place: str, *, dimension: int = 8, number: int = 0) -> Parcel:
    rows = VectorBatch(torch.randn(20, dimension))
    return parcel_of_batch(rows, Space("m", place), role="pooled", sender="s", number=number, time=1.7e9)


# --- Bodies ---


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_body_is_answered_and_nothing_else_happens(name: str, served: Served) -> None:
    attack = ATTACKS[name]
    reply = send(served.port, attack.body(), attack.path, attack.kind, **attack.headers)
    assert reply.status in attack.statuses
    assert reply.error
    assert ask(served.port, "/-/healthy").status == 200
    assert send(served.port, npy()).status == 202


def test_the_largest_exact_states_of_default_statistics_are_taken(served: Served) -> None:
    reply = send(served.port, state(LARGEST_EXACT, place="large").to_bytes(), "/api/v1/parcels", PARCEL)
    assert (reply.status, reply.json) == (202, {"accepted": 300})
    until(lambda: ask(served.port, "/api/v1/spaces/m/large").json.get("open_rows") == 300, "the window")


# --- Clients ---


def test_slow_clients_keep_nobody_out(served: Served) -> None:
    """More than there are hands for bodies: each holds the few bytes that it sent, and no more."""
    with ExitStack() as stack:
        slow = [stack.enter_context(raw(served.port)) for _ in range(SLOW_CLIENTS)]
        for connection in slow:
            connection.sendall(HALF_BODY)
        assert Counter(send(served.port, npy()).status for _ in range(20)) == {202: 20}
        for connection in slow:
            connection.sendall(b"X")
        assert send(served.port, npy()).status == 202
        assert ask(served.port, "/metrics").status == 200


def test_bytes_of_unfinished_bodies_are_bounded_and_given_back(tmp_path: Path) -> None:
    head = HALF_BODY.replace(b"Content-Length: 9000", b"Content-Length: 60000").removesuffix(b"ab")
    with serving(tmp_path, max_body="64KiB", max_ingesting=2) as served:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(raw(served.port)).sendall(head + bytes(59_000))
            reply = until(lambda: (found := send(served.port, npy(1_500))).status == 429 and found, "a refusal")
            assert int(reply.headers["retry-after"]) >= 1
        until(lambda: send(served.port, npy(1_500)).status == 202, "room")


def test_a_client_that_goes_in_the_middle_gives_back_what_it_held(tmp_path: Path) -> None:
    with serving(tmp_path, max_body="64KiB", max_ingesting=1) as served:
        for _ in range(20):
            with raw(served.port) as connection:
                connection.sendall(HALF_BODY + bytes(8_000))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
        until(lambda: send(served.port, npy(1_800)).status == 202, "room for a body of nearly the largest size")


# --- Memory ---


def started(**settings: Any) -> Heart:
    heart = Heart(HeartSettings(interval=3600.0, **settings))
    heart.start()
    return heart


def test_open_windows_are_bounded_until_they_close() -> None:
    need = MapRows.memory(64) + sum(each.memory(64) for each in CourseMaker().statistics("pooled"))
    with closing(started(window_bytes=2 * need)) as heart:
        for place in ("a", "b", "a", "b"):
            heart.accept(batch(place, dimension=64, number=ord(place) + heart.status()["parcels"]["accepted"]))
        assert heart.status()["open_windows"] == {"most_bytes": 2 * need}
        with pytest.raises(Full, match="open windows must take at most") as caught:
            heart.accept(batch("c", dimension=64))
        assert caught.value.retry_after >= 1
        assert heart.status()["parcels"]["refused"]["windows"] == 1
        heart.close_windows()
        assert heart.status()["open_windows"] == {"most_bytes": 0}
        heart.accept(batch("c", dimension=64))


def test_a_window_that_can_never_be_held_is_refused_for_good() -> None:
    with closing(started(window_bytes=100_000)) as heart, pytest.raises(UsageError, match=r"raise `storage\.windows`"):
        heart.accept(batch("a", dimension=512))


def test_open_windows_count_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        heart = Heart(HeartSettings(tmp_path, interval=3600.0))
        heart.start()
        heart.accept(batch("a", dimension=64))
        counted = heart.status()["open_windows"]
        heart.close()
        statistics = sum(each.memory(64) for each in CourseMaker().statistics("pooled"))
        assert counted["most_bytes"] == MapRows.memory(64) + statistics


def test_a_disk_that_takes_nothing_keeps_no_closed_window_in_memory(tmp_path: Path) -> None:
    heart = Heart(HeartSettings(tmp_path, interval=3600.0))
    heart.start()
    with closing(heart):
        heart.accept(batch("a"))
        heart._keeping.store._database.execute("PRAGMA query_only = 1")
        heart.close_windows()
        account = heart._keeping.accounts[Space("m", "a")]
        assert account.dirty
        assert [judgement.window for judgement in account._unsaved] == [None]


def test_restored_histories_share_their_declarations(tmp_path: Path) -> None:
    """Else each Snapshot that was read takes more than twice of what it took before the restart."""
    for _ in range(2):
        heart = Heart(HeartSettings(tmp_path, interval=3600.0))
        heart.start()
        with closing(heart):
            for number in range(3):
                heart.accept(batch("a", number=heart.status()["parcels"]["accepted"] + 10 * number))
                heart.close_windows()
            history = list(heart._keeping.accounts[Space("m", "a")].course.history)
    first, second = ({each.name: each.metric for each in snapshot} for snapshot in history[:2])
    assert len(first) > 10
    assert all(second[name] is metric for name, metric in first.items())


# --- Names ---


@pytest.mark.parametrize("path", ["m{}/p", "m/p{}", "m/p?segment=s{}"], ids=["models", "places", "segments"])
def test_names_beyond_the_most_are_refused_and_leave_nothing(path: str, tmp_path: Path) -> None:
    with serving(tmp_path, limits={"max_spaces": 10}) as served:
        found = Counter(
            send(served.port, npy(4), f"/api/v1/ingest/{path.format(number)}").status for number in range(60)
        )
        assert found == {202: 10, 422: 50}
        served.heart.close_windows()
        assert len(ask(served.port, "/api/v1/spaces").json) == 10
        page = ask(served.port, "/metrics").body.decode()
        assert not re.search(r'="[mps]?59"', page), "what was refused is not shown"


# --- State on the disk ---


def killed_with_state(folder: Path, count: int = 30) -> None:
    """Leave the files of a process that was killed: transactions are in the log, not in the database."""
    with closing(Store(folder / "live")) as store:
        for number in range(count):
            store.add(
                Delivery(Space("m", f"p{number % 3}"), "s", number, batch(f"p{number % 3}", number=number).to_bytes())
            )
        folder.joinpath("state").mkdir()
        for path in (folder / "live").glob(f"{FILE}*"):
            folder.joinpath("state", path.name).write_bytes(path.read_bytes())


SAID = set(DAMAGES) - {"no database", "torn log"}
"""Damages that lose what was acknowledged: a whole log makes the database again, and a log ends where writing ended."""


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_of_the_state_is_said_and_no_end(name: str, tmp_path: Path) -> None:
    killed_with_state(tmp_path)
    DAMAGES[name](tmp_path / "state" / FILE)
    with serving(tmp_path) as served:
        told = served.heart.status()["state"]
        assert (told["damaged"] or told["unrestored"] > 0) == (name in SAID)
        assert send(served.port, npy(50, 32), "/api/v1/ingest/m/again").status == 202
        served.heart.close_windows()
        assert ask(served.port, "/-/healthy").status == 200
    with serving(tmp_path) as served:
        assert ask(served.port, "/api/v1/spaces/m/again").status == 200, "what came after is kept"


def test_a_log_that_ends_in_the_middle_is_no_damage_and_one_that_goes_on_behind_damage_is(tmp_path: Path) -> None:
    killed_with_state(tmp_path)
    log = tmp_path / "state" / f"{FILE}-wal"
    data = log.read_bytes()
    size = FRAME.size + HEADER.unpack_from(data)[2]
    frames = (len(data) - HEADER.size) // size
    assert not hides_transactions(log, frames)
    assert not hides_transactions(log, frames - 1), "the last transaction may have been in the writing"
    assert hides_transactions(log, frames // 2)
    log.write_bytes(data[: HEADER.size + size * (frames // 2) + 100])
    assert not hides_transactions(log, frames // 2)
    log.write_bytes(bytes(HEADER.size) + data[HEADER.size :])
    assert hides_transactions(log, 0)
    log.write_bytes(data[:10])
    assert not hides_transactions(log, 0)
    log.unlink()
    assert not hides_transactions(log, 0)


# --- Real processes ---


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    from benchmarks.reliability_faults import full_disk

    try:
        found = full_disk(tmp_path)
    except (FileNotFoundError, OSError) as error:
        pytest.skip(f"a disk of its own needs root and mount: {error}")
    assert (found["status"], int(found["retry_after"]) >= 1) == (503, True)
    assert found["alive_while_full"]
    assert found["rows_after_restart"] == found["rows_acknowledged"]


@pytest.mark.slow
def test_a_wall_clock_that_jumps_changes_nothing_but_dates(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n", encoding="ascii")
    try:
        environment = {**faked_clock(offset), "EMBEDWATCH_EVALUATION__INTERVAL": "500ms"}
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with ServeProcess(tmp_path, environment=environment) as daemon:
        for jump in ("-2d", "+400d", "-400d", "+0"):
            offset.write_text(f"{jump}\n", encoding="ascii")
            rounds = daemon.status()["rounds"]
            assert send(daemon.port, npy()).status == 202
            until(lambda rounds=rounds: daemon.status()["rounds"] >= rounds + 2, f"two windows after {jump}")  # type: ignore[misc]
            assert daemon.alive
        assert daemon.stop() == 0


@pytest.mark.slow
def test_a_process_that_is_killed_under_load_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import reliability_faults

    monkeypatch.setattr(reliability_faults, "KILLS", 5)
    found = reliability_faults.kills(tmp_path)
    assert found["places_with_rows_lost_or_twice"] == 0
    assert found["acknowledged_rows"] > 0


@pytest.mark.slow
def test_memory_does_not_grow_with_windows_once_histories_are_full(tmp_path: Path) -> None:
    """Eight Spaces, a window every 100 ms: three hours of them at one a minute."""
    with ServeProcess(tmp_path, environment={"EMBEDWATCH_EVALUATION__INTERVAL": "100ms"}) as daemon:
        stop = threading.Event()

        def feed() -> None:
            while not stop.is_set():
                for place in range(8):
                    send(daemon.port, npy(32, 64), f"/api/v1/ingest/m/p{place}")

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            wait_for_rounds(daemon, FULL_HISTORY)
            full = daemon.memory()
            wait_for_rounds(daemon, 2 * FULL_HISTORY)
            grown = daemon.memory() - full
        finally:
            stop.set()
            thread.join()
    assert grown < MOST_GROWTH


def wait_for_rounds(daemon: ServeProcess, rounds: int) -> None:
    poll(lambda: daemon.status()["rounds"] >= rounds, deadline=PATIENCE)
