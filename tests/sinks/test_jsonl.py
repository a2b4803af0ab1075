"""The JSON lines sink appends whole lines, whatever happens to the file."""

from __future__ import annotations

import json
import threading
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
    for path in (tmp_path, tmp_path / "nowhere" / "out.jsonl"):
        with pytest.raises(UsageError, match=r"make the folder first|name a file in it"):
            jsonl(path)
