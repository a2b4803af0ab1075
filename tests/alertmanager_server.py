"""A real Alertmanager for tests: started on a free port, stopped by its process, its data in a folder of the test."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.prometheus_server import DEADLINE, STARTS, free_port, poll

__all__ = ["AlertmanagerServer"]

LASTS = timedelta(hours=1)


class AlertmanagerServer:
    """Takes alerts until the `with` block ends.

    Args:
        program: where it is.
        folder: for its data and log.
        config: its configuration.
    """

    def __init__(self, program: str, folder: Path, config: Path) -> None:
        self._program, self._folder, self._config = program, folder, config
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> AlertmanagerServer:
        for _ in range(STARTS):
            self._start(free_port())
            try:
                poll(self._ready_or_dead)
            except BaseException:
                self.stop()
                raise
            if self._process is not None and self._process.poll() is None:
                return self
        raise AssertionError(self._folder.joinpath("alertmanager.log").read_text())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        arguments = [
            f"--config.file={self._config}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        with self._folder.joinpath("alertmanager.log").open("ab") as log:
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

    def post(self, alerts: Sequence[Mapping[str, str]], *, resolved: bool = False) -> None:
        """Say that alerts of these labels fire, or that they are over."""
        now = datetime.now(timezone.utc)
        ends = now - timedelta(seconds=1) if resolved else now + LASTS
        entries = [
            {"labels": dict(labels), "startsAt": (now - LASTS).isoformat(), "endsAt": ends.isoformat()}
            for labels in alerts
        ]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(entries).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            assert answer.status == 200

    def alerts(self) -> list[dict[str, Any]]:
        """Return all alerts that it knows, those that are inhibited too."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=DEADLINE) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found
