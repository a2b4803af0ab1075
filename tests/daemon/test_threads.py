"""The evaluator of the daemon computes on one thread, however many the process may use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from embedwatch.daemon.receiving import READERS
from tests.checkout import ROOT
from tests.daemon.serving import ask, send, until
from tests.end_to_end.live_daemon import DaemonServer, npy_body

THREADS = 3
BODIES, ROWS, D = 6, 4000, 384
needs_proc = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="threads of a process are counted in Linux's /proc"
)


@pytest.fixture(scope="module")
def told() -> Any:
    """What the process says; a pool begins with as many threads as `OMP_NUM_THREADS` allows."""
    command = [sys.executable, "-m", "tests.daemon.thread_target"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_checks_and_sinks_see_one_thread(told: Any) -> None:
    assert {look["stage"] for look in told["seen"]} == {"check", "sink"}
    assert {look["thread"] for look in told["seen"]} == {"embedwatch-evaluator"}
    assert {look["torch"] for look in told["seen"]} == {1}
    assert [look["pools"] for look in told["seen"]] == [{"openmp": 1}] * len(told["seen"])


def test_others_keep_theirs(told: Any) -> None:
    assert told["main"] == THREADS


@needs_proc
def test_taking_measuring_and_judging_start_no_thread(told: Any) -> None:
    """A mere sum on another thread does."""
    assert told["evaluating"] == 0
    assert told["elsewhere"] > 1


@needs_proc
def test_a_busy_daemon_has_no_threads_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that read bodies come with the first ones; none brings a pool along."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(THREADS))
    with DaemonServer(tmp_path, interval="200ms") as daemon:
        tasks = Path(f"/proc/{daemon.pid}/task")
        before = len(list(tasks.iterdir()))
        for _ in range(BODIES):
            assert send(daemon.port, npy_body(torch.randn(ROWS, D))).status == 202
        until(lambda: ask(daemon.port, "/api/v1/spaces/m/p").json["open_rows"] == 0, "the end of the window")
        assert ask(daemon.port, "/api/v1/spaces/m/p").json["windows"] > 0
        assert len(list(tasks.iterdir())) - before <= READERS
