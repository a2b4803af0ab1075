"""The demo, scraped by a real Prometheus: its alert comes and goes, and it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.dashboards.tools import needs_promtool
from tests.end_to_end.hurried_rules import hurried
from tests.polling import poll
from tests.prometheus_server import PrometheusServer
from tests.server_process import free_port

pytestmark = pytest.mark.slow

SECONDS, DEADLINE = 75, 120.0
ALERT = 'ALERTS{alertname="EmbedwatchTokenNormGrowth",alertstate="firing",model="demo"}'


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "embedwatch", "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def left_in(folder: Path) -> list[str]:
    """Return what of ours is left; torch keeps a folder of its own."""
    return [path.name for path in folder.iterdir() if "embedwatch" in path.name]


@needs_promtool
def test_its_alert_comes_and_goes(tmp_path: Path) -> None:
    port = free_port()
    files = tmp_path / "files"
    files.mkdir()
    process = start(files, "--for", f"{SECONDS}s", "--port", str(port))
    try:
        with PrometheusServer(
            tmp_path, [f"127.0.0.1:{port}"], rules=[hurried(tmp_path, minute=0.05)], interval="500ms"
        ) as server:
            poll(lambda: server.query(ALERT), deadline=DEADLINE)
            poll(lambda: not server.query(ALERT), deadline=DEADLINE)
            assert process.poll() is None, "it is healed before the end"
        said, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "fail    runaway token norm" in said
    assert "ok      runaway token norm" in said
    assert "1 fault shown" in said
    assert left_in(files) == []


def test_ctrl_c_ends_it_at_once_and_nothing_stays(tmp_path: Path) -> None:
    process = start(tmp_path, "--port", "0")
    try:
        read = []
        assert process.stdout is not None
        for line in process.stdout:
            read.append(line)
            if "loss" in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, "".join(read) + rest
    assert "nothing is left behind" in rest
    assert time.monotonic() - began < DEADLINE
    assert left_in(tmp_path) == []
