"""A real `embedwatch serve`: a process of its own on a free port, told by its environment, ended by its number."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.daemon.serving import ask
from tests.polling import poll

__all__ = ["ServeProcess", "faked_clock"]

START_SECONDS = 60.0
"""A busy machine takes its time to load torch."""
AT = re.compile(r"at=http://127\.0\.0\.1:(\d+)")
RESET_PEAK = "5"
"""What Linux takes in `clear_refs` to forget the largest size of a process (man 5 proc)."""
FAKETIME = Path("/usr/lib") / f"{platform.machine()}-linux-gnu" / "faketime" / "libfaketime.so.1"
"""Where Debian's package libfaketime puts it."""


def faked_clock(offset: Path) -> dict[str, str]:
    """Return the environment of a process whose wall clock is off by what a file says; its other clocks are right."""
    if not FAKETIME.exists():
        raise FileNotFoundError(f"{FAKETIME} is missing; apt-get install libfaketime")
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


class ServeProcess:
    """Runs until the `with` block ends, or somebody kills it; then it can be started again.

    Args:
        folder: for its log, and for its state unless `storage` says where.
        storage: folder of its state.
        environment: more variables; `EMBEDWATCH_...` are settings of the daemon.
    """

    def __init__(
        self, folder: Path, *, storage: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.storage = storage or folder / "state"
        self._log = folder / "serve.log"
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> float:
        """Start it, and return the seconds until it was ready."""
        began, size = time.monotonic(), self._log.stat().st_size if self._log.exists() else 0
        arguments = ["serve", "--web.listen-address", "127.0.0.1:0", "--storage.path", str(self.storage)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "embedwatch", *arguments], stdout=log, stderr=log, env=self._environment
            )
        found = poll(lambda: self._ended() or AT.search(self.log[size:]), deadline=START_SECONDS)
        if not isinstance(found, re.Match):
            raise AssertionError(f"it ended while it started: {self.log[size:]}")
        self.port = int(found[1])
        poll(lambda: self._ended() or ask(self.port, "/-/ready").status == 200, deadline=START_SECONDS)
        return time.monotonic() - began

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    @property
    def log(self) -> str:
        """What it wrote so far."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    @property
    def alive(self) -> bool:
        """Whether it runs, judges, and takes bodies."""
        return not self._ended() and all(ask(self.port, path).status == 200 for path in ("/-/healthy", "/-/ready"))

    def status(self) -> dict[str, Any]:
        """Return what it says of itself."""
        found: dict[str, Any] = ask(self.port, "/api/v1/status").json
        return found

    def memory(self, name: str = "VmRSS") -> int:
        """Return its resident bytes; those at their peak as `VmHWM`."""
        lines = self._proc("status").read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith(f"{name}:")]
        return int(line.split()[1]) << 10

    def forget_peak(self) -> None:
        """Let the peak begin at what is resident now."""
        self._proc("clear_refs").write_text(RESET_PEAK, encoding="ascii")

    def _proc(self, name: str) -> Path:
        if self.process is None:
            raise AssertionError("it was not started")
        return Path(f"/proc/{self.process.pid}/{name}")

    def kill(self) -> None:
        """End it as a power cut would: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """End it politely; return its exit status. Calling it again does nothing."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int | None:
        if self.process is None:
            return None
        self.process.send_signal(number)
        try:
            return self.process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
