"""Real servers for tests: started on a free port, stopped by their process, their log in a folder of the test."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.polling import DEADLINE, poll

__all__ = ["ServerProcess", "free_port"]

STARTS = 3
"""A free port can be taken by somebody else before the server has it."""
ServerT = TypeVar("ServerT", bound="ServerProcess")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess(ABC):
    """A program that answers `/-/ready` on a port, until the `with` block ends.

    Args:
        program: where it is.
        folder: for its log.
    """

    patience = DEADLINE
    """Seconds that it may take to be ready."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._log = folder / f"{Path(program).name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @abstractmethod
    def arguments(self, address: str) -> Sequence[str]:
        """Return its command line for an address to listen on."""

    def __enter__(self: ServerT) -> ServerT:
        for _ in range(STARTS):
            self._start(f"127.0.0.1:{free_port()}")
            try:
                poll(self._ready_or_dead, deadline=self.patience)
            except BaseException:
                self.stop()
                raise
            if self._process is not None and self._process.poll() is None:
                return self
        raise AssertionError(self._log.read_text())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, address: str) -> None:
        self.url = f"http://{address}"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self._program, *self.arguments(address)], stdout=log, stderr=log)

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
