"""The sink `daemon`: nobody waits for it, nothing is lost silently, and several processes make one truth."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Space
from embedwatch.core.statistic import Statistic
from embedwatch.monitor import watch
from embedwatch.sinks import open_sink
from embedwatch.sinks.daemon import CONTENT_TYPE, PATH, Daemon, NotDeliveredError
from embedwatch.testing import hostile_snapshots
from embedwatch.window import Window
from tests.polling import poll
from tests.sinks.parcel_receiver import ParcelReceiver

SNAPSHOT = hostile_snapshots()["zero"]
WORKERS, STEPS, ROWS = 4, 6, 32
WORKER = """
import sys, torch
from torch import nn
from embedwatch.monitor import watch
target, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(500, 8), nn.Linear(8, 8))
with watch(model, name="m", places=["1"], every=1, window=1, rows=4096, sinks=[target], budget=None) as monitor:
    for step in range(first, last):
        model(torch.randint(0, 500, (32,), generator=torch.Generator().manual_seed(step)))
        monitor.step(step - first + 1)
"""


def nobody(folder: Path) -> str:
    return f"unix:{folder}/nobody.sock"


def test_sends_what_was_measured_in_order_with_rising_numbers(tmp_path: Path) -> None:
    with ParcelReceiver(tmp_path / "s.sock") as receiver:
        with Daemon(receiver.target, token="secret") as sink:
            for _ in range(5):
                sink.write(SNAPSHOT, [])
        assert [parcel.number for parcel in receiver.parcels] == [0, 1, 2, 3, 4]
        assert {parcel.sender for parcel in receiver.parcels} == {sink.sender}
        path, headers = receiver.requests[0]
        assert (path, headers["Content-Type"], headers["Content-Encoding"]) == (PATH, CONTENT_TYPE, "gzip")
        assert headers["Authorization"] == "Bearer secret"
        assert (sink.delivered, sink.dropped.get("closed", 0)) == (5, 0)


def test_the_token_comes_from_the_environment_and_is_in_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EMBEDWATCH_TOKEN", "quite-secret")
    caplog.set_level(logging.DEBUG)
    with ParcelReceiver(answer=lambda _: (401, {})) as receiver, Daemon(receiver.target) as sink:
        sink.write(SNAPSHOT, [])
        poll(lambda: sink.waiting == 0)
        assert receiver.requests[0][1]["Authorization"] == "Bearer quite-secret"
        assert "401" in caplog.text
        assert "quite-secret" not in caplog.text + repr(sink) + repr(vars(sink.address))


def test_a_busy_daemon_is_asked_again_when_it_said(tmp_path: Path) -> None:
    answers = [(429, {"Retry-After": "1"}), (503, {}), (500, {})]
    with ParcelReceiver(
        tmp_path / "s.sock", answer=lambda n: answers[n] if n < len(answers) else (202, {})
    ) as receiver:
        with Daemon(receiver.target) as sink:
            sink.write(SNAPSHOT, [])
            sink.write(SNAPSHOT, [])
            poll(lambda: len(receiver.parcels) == 2)
        assert [parcel.number for parcel in receiver.parcels] == [0, 1], "the order is kept"
        assert receiver.times[1] - receiver.times[0] >= 0.99
        assert not sink.dropped.get("closed")


def test_a_repeated_delivery_does_no_harm() -> None:
    hung = ParcelReceiver(answer=lambda n: (500, {}) if n == 1 else (202, {}))
    with hung as receiver, Daemon(receiver.target) as sink:
        sink.write(SNAPSHOT, [])
        poll(lambda: len(receiver.parcels) == 1)
        receiver._taken(PATH, {}, _gzipped(receiver.parcels[0].to_bytes()), lambda _: (202, {}))
        assert len(receiver.parcels) == 1


def _gzipped(body: bytes) -> bytes:
    import gzip

    return gzip.compress(body)


def test_a_full_queue_drops_counts_and_raises_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = Daemon(nobody(tmp_path), capacity=2_000, close_seconds=0.1)
    boundary = Boundary()
    for _ in range(20):
        with boundary.guard("sink", "daemon"):
            sink.write(SNAPSHOT, [])
    assert boundary.errors == {("sink", "daemon"): 1}
    assert "full: 1" in caplog.text
    assert sink.dropped["full"] + sink.waiting == 20
    assert sink.dropped["full"] > 10
    sink.close()
    assert sum(sink.dropped.values()) == 20


def test_what_cannot_be_delivered_is_given_up_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.sock"
    sink = Daemon(f"unix:{path}", patience=0.2, close_seconds=5.0)
    sink.write(SNAPSHOT, [])
    poll(lambda: sink.dropped == {"unreachable": 1})
    with pytest.raises(NotDeliveredError, match="unreachable: 1"):
        sink.write(SNAPSHOT, [])
    poll(lambda: sink.dropped["unreachable"] == 2)
    sink.write(SNAPSHOT, [])  # the outage was told
    poll(lambda: sink.waiting == 0)
    with ParcelReceiver(path) as receiver, sink:
        sink.write(SNAPSHOT, [])
        poll(lambda: len(receiver.parcels) == 1)
        poll(lambda: sink.delivered == 1)
        sink.write(SNAPSHOT, [])
        assert "takes deliveries again; 3 were lost in all" in caplog.text
        poll(lambda: sink.delivered == 2)


def test_a_daemon_that_hangs_holds_up_neither_writing_nor_closing() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        sink = Daemon(f"http://127.0.0.1:{listening.getsockname()[1]}", close_seconds=0.2)
        began = time.monotonic()
        for _ in range(50):
            sink.write(SNAPSHOT, [])
        sink.close()
        assert time.monotonic() - began < 5.0
        assert sink.dropped == {"closed": 50}


@pytest.mark.parametrize(
    "target",
    [
        "localhost:9477",
        "ftp://h",
        "http://",
        "http://h:99999",
        "unix:relative",
        "http://u:p@h:1",
        "http://h:1/?token=x",
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(target: str) -> None:
    with pytest.raises(UsageError, match="`target` must be") as error:
        open_sink(f"daemon:{target}")
    assert "u:p" not in str(error.value)
    assert "token=x" not in str(error.value)


def test_a_token_that_no_header_holds_is_refused() -> None:
    with pytest.raises(UsageError, match="`token` must be printable ASCII") as error:
        Daemon("http://localhost:1", token="two\r\nlines")
    assert "lines" not in str(error.value)


def test_a_monitor_sends_windows_and_reports_itself_and_does_not_hold_them(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 8))
    with ParcelReceiver(tmp_path / "s.sock") as receiver:
        target = f"daemon:{receiver.target}"
        with watch(model, name="m", places=["1"], every=1, sinks=[target], budget=None, on_error="raise") as monitor:
            model(torch.arange(50)).sum().backward()
            monitor.step(loss=2.0)
            monitor.flush()
            assert all(judgement.window is None for judgement in monitor._courses.judgements().values())
        kinds = {parcel.space.place: parcel.kind for parcel in receiver.parcels}
        assert kinds["1"] == kinds["training"] == kinds["token_table"] == "state"
        assert kinds["monitor"] == "snapshot"
        window = receiver.windows()[Space("m", "1")]
        assert (window.rows, window.dimension) == (50, 8)


def test_a_daemon_that_is_away_is_a_finding_and_stops_nothing(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 8))
    sink = Daemon(nobody(tmp_path), capacity=1, close_seconds=0.1)
    with watch(model, places=["1"], every=1, window=1, sinks=[sink], budget=None) as monitor:
        for step in range(1, 8):
            model(torch.arange(50)).sum().backward()
            monitor.step(step)
        monitor.flush()
        assert monitor.errors == {("sink", "daemon"): 1}
    sink.close()


def whole(tmp_path: Path) -> dict[Space, Window]:
    """Return what one process that sees all rows sends."""
    with ParcelReceiver(tmp_path / "one.sock") as receiver:
        _work(receiver.target, 0, WORKERS * STEPS).wait(120)
        return receiver.windows()


def _work(target: str, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WORKER, f"daemon:{target}", str(first), str(last)]
    return subprocess.Popen(command)


def test_four_processes_make_the_truth_of_one(tmp_path: Path) -> None:
    with ParcelReceiver(tmp_path / "four.sock") as receiver:
        workers = [_work(receiver.target, i * STEPS, (i + 1) * STEPS) for i in range(WORKERS)]
        assert [worker.wait(120) for worker in workers] == [0] * WORKERS
        assert len({parcel.sender for parcel in receiver.parcels}) == WORKERS
        found = receiver.windows()[Space("m", "1")]
        again = receiver.windows(lambda parcels: parcels[::-1])[Space("m", "1")]
    expected = whole(tmp_path)[Space("m", "1")]
    assert found.rows == again.rows == expected.rows == WORKERS * STEPS * ROWS
    assert found.failed | again.failed | expected.failed == set()
    assert found.statistics.keys() == expected.statistics.keys()
    for name, statistic in expected.statistics.items():
        _same(found.statistics[name], statistic)
        _same(again.statistics[name], statistic)


def _same(found: Statistic[Any], expected: Statistic[Any]) -> None:
    values = {measurement.key: measurement for measurement in expected.compute()}
    for measurement in found.compute():
        want, tolerance = values[measurement.key].number, found.merge_tolerance(measurement.name)
        assert measurement.number == (None if want is None else pytest.approx(want, rel=tolerance, abs=tolerance))
