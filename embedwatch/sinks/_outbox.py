"""An outbox: bodies that wait to be sent, and the one thread that sends them, in order."""

from __future__ import annotations

import gzip
import http.client
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from embedwatch.sinks._http_target import HttpTarget, Reply

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

LEVEL = 1
"""Of gzip: the next ones take twice the time for a few percent."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before the second try, doubled with each further one up to the longest, less up to half by chance."""
AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which the same body may be taken later; others are final."""


@dataclass(frozen=True)
class _Letter:
    body: bytes
    expires: float


class Outbox:
    """Sends bodies to one address. `put` never waits, and what cannot be delivered is dropped and counted.

    Args:
        target: where to.
        path: of the request.
        headers: of each request. They may hold a secret: nothing here logs them.
        capacity: the most bytes that may wait.
        patience: seconds after which a body that could not be delivered is given up.
        clock: seconds of any origin that only move forward.
    """

    def __init__(
        self,
        target: HttpTarget,
        path: str,
        headers: dict[str, str],
        *,
        capacity: int,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._path = target, path
        self._headers = {**headers, "Content-Encoding": "gzip"}
        self._capacity, self._patience, self._clock = capacity, patience, clock
        self._letters: deque[_Letter] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None
        self.dropped: Counter[str] = Counter()
        """Bodies that were given up, by reason."""
        self.delivered = 0
        """Bodies that were accepted."""

    def put(self, body: bytes) -> bool:
        """Add a body; return whether there was room."""
        with self._changed:
            if self._deadline is not None or self._held + len(body) > self._capacity:
                self.dropped["closed" if self._deadline is not None else "full"] += 1
                return False
            self._letters.append(_Letter(body, self._clock() + self._patience))
            self._held += len(body)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="embedwatch-daemon-sink", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return True

    @property
    def waiting(self) -> int:
        """Bodies that were not delivered yet."""
        with self._changed:
            return len(self._letters)

    def close(self, seconds: float) -> None:
        """Send what waits for so long at most, and end; what remains is dropped and counted."""
        with self._changed:
            self._deadline = self._clock() + seconds if self._deadline is None else self._deadline
            self._changed.notify_all()
        if self._thread is not None:
            # a request that hangs ends by its own timeout, and nobody waits for that
            self._thread.join(max(0.0, self._deadline - self._clock()))
        with self._changed:
            self.dropped["closed"] += len(self._letters)
            self._letters.clear()
            self._held = 0

    def _run(self) -> None:
        connection = self._target.connection()
        try:
            while (letter := self._next()) is not None:
                reason = self._deliver(connection, letter)
                with self._changed:
                    if self._letters and self._letters[0] is letter:
                        self._letters.popleft()
                        self._held -= len(letter.body)
                        self.delivered += reason is None
                        if reason is not None:
                            self.dropped[reason] += 1
        finally:
            connection.close()

    def _next(self) -> _Letter | None:
        """Wait for a letter; `None` where there will be no more."""
        with self._changed:
            while not self._letters and self._deadline is None:
                self._changed.wait()
            return self._letters[0] if self._letters and not self._is_late() else None

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock() >= self._deadline

    def _deliver(self, connection: http.client.HTTPConnection, letter: _Letter) -> str | None:
        """Try until it is accepted, refused or given up; return why it was not accepted."""
        body, tries = gzip.compress(letter.body, LEVEL, mtime=0), 0
        while True:
            reply, reason = self._tried(connection, body)
            if reply is not None and 200 <= reply.status < 300:
                return None
            if reply is not None and reply.status not in AGAIN:
                log.warning("embedwatch: the daemon refused a delivery with status %d; it is dropped", reply.status)
                return reason
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 10)) * random.uniform(0.5, 1.0)  # noqa: S311
            if reply is not None and reply.retry_after is not None:
                pause = min(LONGEST_PAUSE, max(reply.retry_after, FIRST_PAUSE * random.random()))  # noqa: S311
            tries += 1
            if self._clock() + pause > letter.expires or not self._pause(pause):
                return reason

    def _tried(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[Reply | None, str]:
        try:
            reply = self._target.post(connection, self._path, body, self._headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            log.debug("embedwatch: the daemon could not be reached: %s", type(error).__name__)
            return None, "unreachable"
        return reply, f"status {reply.status}"

    def _pause(self, seconds: float) -> bool:
        """Wait, at most until the deadline; return whether there is time for another try."""
        end = self._clock() + seconds
        with self._changed:
            while (left := end - self._clock()) > 0 and not self._is_late():
                if self._deadline is not None:
                    left = min(left, self._deadline - self._clock())
                self._changed.wait(max(left, 0.0))
            return not self._is_late()
