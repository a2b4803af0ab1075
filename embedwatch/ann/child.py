"""Index files are opened in processes of their own: a file that ends FAISS ends one of these, and no more.

FAISS ends the process that calls it for some damaged files and some calls (an exception inside a parallel region, a
read beyond the end), and may ask for any amount of memory. A child has a limit of memory and of time. It imports no
torch, and is kept for the next file: to start one takes a quarter of a second.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from embedwatch.ann.facts import IndexRefusedError

__all__ = ["Child", "ChildEndedError", "borrowed"]

IDLE_CHILDREN = 2
"""So many wait for the next file."""
CHUNK = 1 << 20
ANSWER_BYTES = 1 << 20
"""Longest JSON that an answer may be."""
CODE = "from embedwatch.ann._worker import main; main()"


class ChildEndedError(Exception):
    """The process ended, or did not answer in time: why, in a few words."""


class Child:
    """One process in which one index is open at a time."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        path = os.pathsep.join(entry or os.fspath(Path.cwd()) for entry in sys.path)
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONSAFEPATH": "1",
            "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin take five times the time on a busy machine
        }
        self._process = subprocess.Popen(  # noqa: S603  # Python itself, and a program of ours
            [sys.executable, "-c", CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us; it ends with our end of the pipe
        )
        self.key: list[Any] = []
        """Which file is open in it."""
        self._asked = False
        self._into, self._out_of = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)

    @property
    def usable(self) -> bool:
        """Whether it runs and waits for a request."""
        return not self._asked and self._process.poll() is None

    def ask(
        self, what: str, *, seconds: float, body: bytes | memoryview = b"", **request: Any
    ) -> tuple[dict[str, Any], bytearray]:
        """Send a request and return its answer, with the raw bytes that belong to it.

        Raises:
            IndexRefusedError: what the child says is wrong with the index.
            ChildEndedError: if it ended, or did not answer in time. It is gone then.
        """
        until = time.monotonic() + seconds
        self._asked = True  # whoever is interrupted before the answer came leaves a child that cannot be used
        head = json.dumps({"do": what, "bytes": len(body), **request}).encode() + b"\n"
        try:
            self._send(head, until)
            self._send(body, until)
            told_bytes, data_bytes = struct.unpack("<QQ", self._read(16, until))
            if told_bytes > ANSWER_BYTES:
                raise ValueError
            told = json.loads(self._read(told_bytes, until))
            data = self._read(data_bytes, until)
        except TimeoutError:
            self.end()
            raise ChildEndedError(f"took over {seconds:,.0f} s") from None
        except (BrokenPipeError, EOFError, ValueError, KeyError):
            raise ChildEndedError(self._death()) from None
        self._asked = False
        if "refused" in told:
            raise IndexRefusedError(told["refused"])
        answer: dict[str, Any] = told["answer"]
        return answer, data

    def _send(self, data: bytes | memoryview, until: float) -> None:
        view, handle = memoryview(data).cast("B"), self._into.fileno()
        os.set_blocking(handle, False)
        while view:
            _wait(handle, selectors.EVENT_WRITE, until)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(handle, view[:CHUNK]) :]

    def _read(self, count: int, until: float) -> bytearray:
        data = bytearray(count)
        view, handle = memoryview(data), self._out_of.fileno()
        while view:
            _wait(handle, selectors.EVENT_READ, until)
            got = os.readv(handle, [view[:CHUNK]])
            if not got:
                raise EOFError
            view = view[got:]
        return data

    def _death(self) -> str:
        """Return how it ended, and what it said last."""
        try:
            status = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self.end()
            return "gave no sense"
        words = f"with status {status}"
        if status < 0:
            with contextlib.suppress(ValueError):
                words = f"by {signal.Signals(-status).name}"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(self._log.tell() - 4096, 0))
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        said = "".join(character if character.isprintable() else "?" for character in lines[-1][:100]) if lines else ""
        self.end()
        return f"ended {words}" + (f", saying {said!r}" if said else "")

    def end(self) -> None:
        """End it."""
        self.key = []
        for pipe in (self._into, self._out_of):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.kill()
        self._process.wait()
        self._log.close()


def _wait(handle: int, event: int, until: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(handle, event)
        if not selector.select(max(until - time.monotonic(), 0)):
            raise TimeoutError


_idle: list[Child] = []
_lock = threading.Lock()


def _forget() -> None:
    """After a fork the children are those of the parent."""
    global _lock  # noqa: PLW0603  # another thread may have held it
    _lock = threading.Lock()
    _idle.clear()


def _end_all() -> None:
    with _lock:
        children = list(_idle)
        _idle.clear()
    for child in children:
        child.end()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def borrowed(key: list[Any] | None = None) -> Iterator[Child]:
    """Lend a process: one in which this file is open already, another that waits, or a new one.

    Args:
        key: which file is to be opened in it.
    """
    child = _idle_child(key) or Child()
    try:
        yield child
    finally:
        with _lock:
            keep = child.usable and len(_idle) < IDLE_CHILDREN
            if keep:
                _idle.append(child)
        if not keep:
            child.end()


def _idle_child(key: list[Any] | None) -> Child | None:
    """Return a child that waits: with this file open, or with none, or any where as many wait as may."""
    with _lock:
        for child in [child for child in _idle if not child.usable]:
            _idle.remove(child)
            child.end()
        ways = [
            [child for child in _idle if key and child.key == key],
            [child for child in _idle if not child.key],
            _idle[:1] if len(_idle) >= IDLE_CHILDREN else [],
        ]
        found = next((children[0] for children in ways if children), None)
        if found is not None:
            _idle.remove(found)
        return found
