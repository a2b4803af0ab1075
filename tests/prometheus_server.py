"""A real Prometheus for tests: started on a free port, stopped by its process, its data in a folder of the test."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

__all__ = ["PrometheusServer", "free_port", "poll", "require"]

DEADLINE = 30.0
"""Seconds that a loaded machine may take for what usually takes one."""
PAUSE = 0.05
STARTS = 3
"""A free port can be taken by somebody else before Prometheus has it."""

Sample = dict[str, Any]


def require(program: str) -> str:
    """Return where a program of Debian's `prometheus` package is; skip the test where it is not installed."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed; it comes with Debian's package `prometheus`")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def poll(attempt: Callable[[], Any], *, until: Callable[[Any], bool] = bool, deadline: float = DEADLINE) -> Any:
    """Return the first answer that is wanted; fail with the last one when the deadline has passed."""
    end = time.monotonic() + deadline
    while True:
        answer: Any = None
        try:
            answer = attempt()
            if until(answer):
                return answer
        except (OSError, ValueError, LookupError) as error:
            answer = error
        if time.monotonic() > end:
            raise AssertionError(f"after {deadline:g} s the answer still was {answer!r}")
        time.sleep(PAUSE)


class PrometheusServer:
    """Scrapes targets until the `with` block ends.

    Args:
        folder: for its configuration, data and log.
        targets: `host:port` of what it scrapes, under the job `embedwatch`.
        rules: rule files that it evaluates.
        interval: between scrapes, and between evaluations.
    """

    def __init__(
        self, folder: Path, targets: Sequence[str], *, rules: Sequence[Path] = (), interval: str = "200ms"
    ) -> None:
        self._program = require("prometheus")
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        configuration = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [{"job_name": "embedwatch", "static_configs": [{"targets": list(targets)}]}],
        }
        folder.joinpath("prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML

    def __enter__(self) -> PrometheusServer:
        for _ in range(STARTS):
            self._start(free_port())
            try:
                poll(self._ready_or_dead)
            except BaseException:
                self.stop()
                raise
            if self._process is not None and self._process.poll() is None:
                return self
        raise AssertionError(self._folder.joinpath("prometheus.log").read_text())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        arguments = [
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with self._folder.joinpath("prometheus.log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *arguments], stdout=log, stderr=log)

    def _ready_or_dead(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)

    def stop(self) -> None:
        """End the process. Calling it again does nothing."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(DEADLINE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its HTTP API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=DEADLINE) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Sample]:
        """Return the samples of an instant query: each has `metric` and `value`."""
        found: list[Sample] = self.get("query", query=expression)["result"]
        return found

    def value(self, expression: str) -> float:
        """Return the value of a query that finds one sample."""
        (sample,) = self.query(expression)
        return float(sample["value"][1])

    def wait_for(self, expression: str, predicate: Callable[[list[Sample]], bool] = bool) -> list[Sample]:
        """Return the samples once they are as wanted."""
        found: list[Sample] = poll(lambda: self.query(expression), until=predicate)
        return found
