"""Verdicts are read from files, recordings and a daemon, and chosen by check and place."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from embedwatch import InputError, Limit, Provenance, Snapshot, Space, UsageError
from embedwatch.core.verdict import Evidence, Verdict
from embedwatch.explaining import choose_verdicts, read_verdicts
from embedwatch.recording import RECORDING_FILE
from embedwatch.sinks.jsonl import JsonLines


def verdict(check: str, place: str = "vectors") -> Verdict:
    evidence = Evidence(0.95, Limit(warn=0.9), 500, "Alike.", "mean_cosine")
    return Verdict(check, "title", Space("m", place), "warn", evidence, 0.9, "Alike.", "Lost.", "Repair it.")


FOUND = [verdict("collapse"), verdict("drift", "layers.0"), verdict("drift", "layers.1")]
PLAIN = [each.to_json() for each in FOUND]


@pytest.mark.parametrize(
    "data",
    [
        {"schema": 1, "verdicts": PLAIN},
        {"schema": 1, "spaces": [{"verdicts": PLAIN[:1]}, {"verdicts": PLAIN[1:]}]},
        PLAIN,
        {"spaces": [{"verdicts": [{**each, "since": None} for each in PLAIN]}]},
    ],
)
def test_what_commands_print_is_read(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "found.json"
    path.write_text(json.dumps(data))
    assert read_verdicts(path) == FOUND


def test_the_newest_verdicts_of_a_recording_are_read(tmp_path: Path) -> None:
    with JsonLines(tmp_path / RECORDING_FILE) as sink:
        for step in (1, 2):
            sink.write(Snapshot(Space("m", "vectors"), (), Provenance(time=step, rows=1, step=step)), FOUND[:step])
    assert read_verdicts(tmp_path) == read_verdicts(tmp_path / RECORDING_FILE) == FOUND[:2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "must hold verdicts, got none"),
        (b"[]", "must hold verdicts, got none"),
        (b"no json", "must be strict JSON"),
        (b'{"verdicts": [{"check": "drift", "status": "fine"}]}', "`status` must be one of"),
        (b'{"verdicts": [{"check": "drift", "status": "ok"}]}', "not a verdict"),
    ],
)
def test_a_file_without_verdicts_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "found.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_verdicts(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_verdicts(tmp_path / "none.json")


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", Path("/dev/zero")):
        with pytest.raises(InputError, match="must be a regular file, got a pipe or device; write the JSON to a file"):
            read_verdicts(path)


def test_an_empty_name_is_not_the_folder_that_one_is_in() -> None:
    with pytest.raises(UsageError, match="got an empty name; name one"):
        read_verdicts("")


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == "Bearer secret" and self.path == "/api/v1/verdicts"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(json.dumps(PLAIN).encode() if allowed else b"{}")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class calls it
        pass


@pytest.fixture
def daemon() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_daemon_is_asked_with_its_token(daemon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDWATCH_TOKEN", "secret")
    assert read_verdicts(daemon) == read_verdicts(f"{daemon}/api/v1/verdicts") == FOUND
    monkeypatch.delenv("EMBEDWATCH_TOKEN")
    with pytest.raises(InputError, match="must answer 200, got 401"):
        read_verdicts(daemon)


def test_an_address_at_which_nobody_answers_is_refused() -> None:
    with pytest.raises(InputError, match="see that the daemon runs"):
        read_verdicts("http://127.0.0.1:1")
    with pytest.raises(UsageError, match="got one with a user or a query"):
        read_verdicts("http://me:secret@127.0.0.1:1")


def test_verdicts_are_chosen_by_check_and_place() -> None:
    assert choose_verdicts(FOUND) == FOUND
    assert choose_verdicts(FOUND, check="drift") == FOUND[1:]
    assert (
        choose_verdicts(FOUND, check="d*", place="layers.1") == choose_verdicts(FOUND, place="m/layers.1") == FOUND[2:]
    )
    with pytest.raises(UsageError, match=r"`check` must match a verdict, got 'drft'; .*drift"):
        choose_verdicts(FOUND, check="drft")
    with pytest.raises(UsageError, match=r"`place` must match a verdict, got 'xyz'; there are vectors, layers\.0"):
        choose_verdicts(FOUND, place="xyz")
