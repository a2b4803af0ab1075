"""The JSON lines sink appends whole lines, whatever happens to the file."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedwatch.core import UsageError
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.testing import hostile_snapshots


def jsonl(path: Path) -> Sink:
    return get(Sink, "jsonl").open(str(path))  # type: ignore[type-abstract]


def test_appends_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"mine": true}\n')
    snapshot = hostile_snapshots()["odd labels"]
    with jsonl(path) as sink:
        sink.write(snapshot, [])
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == {"mine": True}
    assert json.loads(second)["snapshot"] == json.loads(json.dumps(snapshot.to_json()))


def test_starts_again_where_the_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = jsonl(path)
    snapshot = hostile_snapshots()["zero"]
    sink.write(snapshot, [])
    path.unlink()
    sink.write(snapshot, [])
    assert len(path.read_text().splitlines()) == 1


def test_writers_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    snapshot = hostile_snapshots()["a thousand"]

    def write() -> None:
        with jsonl(path) as sink:
            for _ in range(5):
                sink.write(snapshot, [])

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 20
    assert all(json.loads(line)["snapshot"]["schema"] == 1 for line in lines)


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "out.jsonl", tmp_path / "file" / "below" / "out.jsonl"):
        with pytest.raises(UsageError, match=r"below folders, .*; name another|name a file in it"):
            jsonl(path)


def test_folders_that_are_missing_are_made_with_the_first_line_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first" / "out.jsonl"
    sink = jsonl(path)
    assert not list(tmp_path.iterdir())
    sink.write(hostile_snapshots()["zero"], [])
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("left", ['{"half', '{"whole": 1}'])
def test_what_a_killed_writer_left_is_ended_first(tmp_path: Path, left: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(left)
    snapshot = hostile_snapshots()["zero"]
    with jsonl(path) as sink:
        sink.write(snapshot, [])
        sink.write(snapshot, [])
    first, *others = path.read_text().split("\n")
    assert first == left
    assert [bool(line) for line in others] == [True, True, False]
    assert all(json.loads(line)["snapshot"] for line in others[:2])


def test_a_pipe_has_no_end_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with jsonl(path) as sink:
        sink.write(hostile_snapshots()["zero"], [])
    assert json.loads(os.read(reader, 1 << 16))["verdicts"] == []
    os.close(reader)


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[None]:
    """Somebody who may look at everything here and write nothing, whoever runs this."""
    nobody = 65534
    user = os.geteuid()
    parents = [(parent, parent.stat().st_mode) for parent in (tmp_path, *tmp_path.parents)]
    for parent, mode in parents[: 3 if user == 0 else 0]:
        parent.chmod(mode | 0o055)
    if user == 0:
        os.seteuid(nobody)
    else:
        tmp_path.chmod(0o555)
    yield
    if user == 0:
        os.seteuid(user)
    for parent, mode in parents[:3]:
        parent.chmod(mode)


def test_a_folder_in_which_nothing_can_be_made_is_refused_at_once(tmp_path: Path, nobody: None) -> None:
    with pytest.raises(UsageError, match=r"can be written, got '.*out.jsonl'.*change its permissions"):
        jsonl(tmp_path / "out.jsonl")
    os.seteuid(os.getuid())  # nobody may look there either
    assert not (tmp_path / "out.jsonl").exists()


@pytest.fixture
def protected(tmp_path: Path) -> Path:
    path = tmp_path / "out.jsonl"
    path.write_text("")
    path.chmod(0o444)
    return path


def test_a_file_that_cannot_be_written_is_refused_at_once(protected: Path, nobody: None) -> None:
    with pytest.raises(UsageError, match=r"Permission denied; change its permissions, or name another file"):
        jsonl(protected)


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o000)
    return folder


def test_a_folder_that_cannot_be_looked_into_is_refused_at_once(hidden: Path, nobody: None) -> None:
    with pytest.raises(UsageError, match="change its permissions"):
        jsonl(hidden / "out.jsonl")


def test_nothing_is_made_before_the_first_line(tmp_path: Path) -> None:
    with jsonl(tmp_path / "out.jsonl"):
        pass
    assert not list(tmp_path.iterdir())
