"""The store: nothing acknowledged is lost, nothing is kept twice, and damage is moved aside."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from embedwatch.core import Space, UsageError
from embedwatch.daemon.chronicle import TURNS, WINDOWS, Chapter
from embedwatch.daemon.state_files import SCHEMA_VERSION
from embedwatch.daemon.store import FILE, REMEMBERED, Delivery, Saved, Store, VerdictState
from embedwatch.large_bytes import PIECE

SPACE, OTHER = Space("m", "p"), Space("m", "q", head="1")
VERSION_1 = Path(__file__).with_name("state_v1.sql")


def delivery(number: int, data: bytes = b"rows", *, sender: str = "w0", space: Space = SPACE) -> Delivery:
    return Delivery(space, sender, number, data)


def test_what_was_added_is_there_after_the_next_start(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        numbers = [store.add(delivery(1)), store.add(delivery(2)), store.add(delivery(1, space=OTHER, sender="w1"))]
    with closing(Store(tmp_path)) as store:
        kept = store.restore()
        assert kept[SPACE].entries == [(numbers[0], b"rows"), (numbers[1], b"rows")]
        assert kept[OTHER].entries == [(numbers[2], b"rows")]
        assert store.add(delivery(2)) is None, "a delivery is known after a restart"
        assert store.knows("w0", 2)
        assert not store.knows("w0", 3)


def test_a_parcel_leaves_the_inbox_with_the_window_that_it_went_into(tmp_path: Path) -> None:
    state = VerdictState("collapse", 1.5, {"status": "ok"})
    with closing(Store(tmp_path)) as store:
        first, second = store.add(delivery(1)), store.add(delivery(2))
        assert first is not None
        store.save([Saved(SPACE, b"window", [first], [{"rows": 1}], [state])])
    with closing(Store(tmp_path)) as store:
        kept = store.restore()[SPACE]
        assert (kept.window, kept.entries) == (b"window", [(second, b"rows")])
        assert (list(kept.snapshots), kept.verdicts) == ([{"rows": 1}], [state])
        store.save([Saved(SPACE, None)])
        assert store.restore()[SPACE].window is None


def test_a_save_that_fails_changes_nothing(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        number = store.add(delivery(1))
        assert number is not None
        broken = Saved(OTHER, None, snapshots=[{"not": object()}])
        with pytest.raises(TypeError):
            store.save([Saved(SPACE, b"window", [number]), broken])
        kept = store.restore()[SPACE]
        assert (kept.window, kept.entries) == (None, [(number, b"rows")])


def test_only_the_last_snapshots_are_kept() -> None:
    store = Store(None)
    for number in range(REMEMBERED + 10):
        store.save([Saved(SPACE, None, snapshots=[{"number": number}])])
    kept = store.restore()[SPACE].snapshots
    assert [kept[0]["number"], kept[-1]["number"]] == [10, REMEMBERED + 9]
    store.forget([SPACE])
    assert store.restore() == {}


def test_only_the_last_statuses_and_turns_are_kept_of_each_space() -> None:
    store = Store(None)
    for number in range(WINDOWS + 3):
        chapter = Chapter([(float(number), "ok")], [{"time": float(number)}])
        store.save([Saved(SPACE, None, chapter=chapter), Saved(OTHER, None, chapter=Chapter([(0.0, "fail")]))])
    kept = store.restore()
    assert [kept[SPACE].statuses[0], len(kept[SPACE].statuses)] == [[3.0, "ok"], WINDOWS]
    assert [kept[SPACE].turns[-1], len(kept[SPACE].turns)] == [{"time": WINDOWS + 2.0}, TURNS]
    assert (len(kept[OTHER].statuses), kept[OTHER].turns) == (WINDOWS, [])
    store.forget([SPACE])
    assert list(store.restore()) == [OTHER]


def test_deliveries_of_many_threads_all_arrive(tmp_path: Path) -> None:
    numbers: list[int | None] = []
    with closing(Store(tmp_path)) as store:

        def send(sender: str) -> None:
            numbers.extend(store.add(delivery(number, sender=sender)) for number in range(20))

        threads = [threading.Thread(target=send, args=(f"w{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for number in numbers if number is not None) == list(range(1, 161))


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            store.add(delivery(1, bytes(1 << 20)))
        assert not store.knows("w0", 1), "what was refused may come again"
        store._database.execute("PRAGMA max_page_count = 1000000")
        assert store.add(delivery(1, bytes(1 << 20))) is not None


@pytest.mark.parametrize("damage", [b"", b"no database at all" * 1000], ids=["half", "other"])
def test_a_damaged_file_is_moved_aside_and_said_once(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Store(tmp_path)) as store:
        for number in range(50):
            store.add(delivery(number, bytes(4096)))
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(damage or whole[: len(whole) // 2])
    with caplog.at_level(logging.ERROR), closing(Store(tmp_path)) as store:
        assert store.restore() == {}
        assert store.damaged is not None
        assert store.damaged.exists()
        assert store.add(delivery(1)) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    with closing(Store(tmp_path)) as store:
        assert store.damaged is None, "the new file is whole"


def test_rows_that_are_no_json_are_damage_too(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store._database.execute("INSERT INTO snapshots (space, snapshot) VALUES ('{}', 'nonsense')")
    with closing(Store(tmp_path)) as store:
        assert store.restore() == {}
        assert store.damaged is not None


def test_a_file_of_version_1_is_brought_to_this_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.executescript(VERSION_1.read_text(encoding="utf-8"))
    with closing(Store(tmp_path)) as store:
        kept = store.restore()[SPACE]
        assert (kept.entries, list(kept.snapshots)) == ([(1, b"rows")], [{"schema": 1}])
        assert store.knows("w0", 7)
        store.save([Saved(SPACE, None, verdicts=[VerdictState("collapse", 2.0, {})])])
        assert store.damaged is None
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(UsageError, match=f"must be of version {SCHEMA_VERSION}, got {SCHEMA_VERSION + 1}"):
        Store(tmp_path)
    assert (tmp_path / FILE).exists()


def test_a_folder_has_one_daemon(tmp_path: Path) -> None:
    with closing(Store(tmp_path)), pytest.raises(UsageError, match="used by one daemon"):
        Store(tmp_path)
    Store(tmp_path).close()


def test_a_storage_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="must be a folder to write in"):
        Store(tmp_path / "file")


@pytest.mark.parametrize("size", [PIECE, PIECE + 1, 3 * PIECE + 5])
def test_large_parcels_and_windows_are_whole(tmp_path: Path, size: int) -> None:
    parcel, window = bytes(range(256)) * (size // 256 + 1), bytes(reversed(range(256))) * (size // 256 + 1)
    with closing(Store(tmp_path)) as store:
        numbers = [store.add(delivery(number, parcel[number:size])) for number in range(2)]
        for _ in range(2):  # the second replaces the first
            store.save([Saved(SPACE, window[:size])])
    with closing(Store(tmp_path)) as store:
        kept = store.restore()[SPACE]
    assert kept.window == window[:size]
    assert kept.entries == [(numbers[number], parcel[number:size]) for number in range(2)]
