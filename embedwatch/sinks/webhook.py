"""Posts findings to a webhook when they come, and when they go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.exposition import RUNBOOKS
from embedwatch.sinks._alert_book import AlertBook, News
from embedwatch.sinks._alertmanager import message
from embedwatch.sinks._endpoint import Endpoint, RefusedError

REPEAT = 4 * 3600.0
CAPACITY = 1_000
TIMEOUT = 5.0
PAUSES = (1.0, 2.0, 4.0)
"""Seconds before each further try of a message."""
REST = 60.0
"""Seconds after which an endpoint that failed is tried again, unless a window comes first."""
LAST = 10.0
"""Seconds that closing may take."""


class Webhook(Sink):
    """Posts verdicts when they become `warn` or `fail` and when they recover, as Alertmanager's webhook (version 4).

    For those who have no Prometheus: whatever takes notifications of Alertmanager takes these. The alerts are named as
    in the Prometheus rules, without their delays. One message is about one check of one Space. Nothing is told twice,
    but for what lasts for hours; `unknown` changes nothing. A run that ends resolves nothing, and what an earlier
    process told is not known.

    Writing never waits: a thread of its own posts. What fails is tried a few times, then again with a later window, so
    that an endpoint that comes back is told how things stand then. Each failure is raised once by a later `write`.
    Redirections are not followed, no proxy is used, and the address is never logged.

    Args:
        url: `http://` or `https://`, with a user and a password where needed.
        repeat: seconds after which an alert that lasts is told again.
        capacity: the most findings at once; what is beyond is dropped, and raised once.
        timeout: seconds that the other side may take for each step.
        pauses: seconds before each further try.
        rest: seconds until all tries begin anew, unless a window comes first.
        runbooks: address of the folder of the runbooks.
        external_url: what a receiver links to as the place where the message comes from.
        clock: seconds since the epoch.

    Raises:
        UsageError: if the address is not one, or a number is out of range.
    """

    name = "webhook"
    title = "webhook"
    target = "URL"

    def __init__(
        self,
        url: str,
        *,
        repeat: float = REPEAT,
        capacity: int = CAPACITY,
        timeout: float = TIMEOUT,
        pauses: Sequence[float] = PAUSES,
        rest: float = REST,
        runbooks: str = RUNBOOKS,
        external_url: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        for name, number in (("repeat", repeat), ("capacity", capacity), ("timeout", timeout), ("rest", rest)):
            if not number > 0:
                raise UsageError(f"`{name}` must be positive, got {number}; leave it out for the default")
        self._endpoint = Endpoint(url, timeout=timeout)
        self._pauses, self._rest, self._external_url, self._clock = tuple(pauses), rest, external_url, clock
        self._book = AlertBook(repeat, capacity, runbooks)
        self._failure = ""
        self._told_full = False
        self._lock = threading.Lock()
        self._woken, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="embedwatch-webhook", daemon=True)
        self._thread.start()

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Note what has changed; it is posted by and by.

        Raises:
            ConnectionError: if a message failed, or a finding had no room, since the last time.
        """
        del exhibits
        with self._lock:
            self._told_full &= self._book.is_full
            full = bool(self._book.take(verdicts, snapshot.provenance.time)) and not self._told_full
            self._told_full |= full
            failure, self._failure = self._failure, ""
        self._woken.set()
        if full:
            raise ConnectionError(
                f"sink webhook must have room for all findings, got more than {self._book.capacity}; some are dropped"
            )
        if failure:
            raise ConnectionError(failure)

    def close(self) -> None:
        """Post what waits, once, and end. Calling it again does nothing.

        Raises:
            ConnectionError: if not everything was told.
        """
        if self._closed.is_set():
            return
        self._closed.set()
        self._woken.set()
        self._thread.join(LAST)
        with self._lock:
            waiting, failure = self._book.waiting(self._clock()), self._failure
        if waiting:
            raise ConnectionError(failure or f"sink webhook: {waiting} messages to {self._endpoint} were not told")

    def _run(self) -> None:
        """Post what is due each time a window comes, and a last time when the sink is closed."""
        failed = last = False
        while not last:
            self._woken.wait(self._rest if failed else None)
            self._woken.clear()
            last = self._closed.is_set()
            failed = not self._post_all()

    def _post_all(self) -> bool:
        """Post until nothing is due; return whether that went well. After a failure the others wait too."""
        while True:
            with self._lock:
                news = self._book.next(self._clock())
            if news is None:
                return True
            done = self._post(news)
            with self._lock:
                if not done:
                    self._book.failed(news)
                    return False
                self._book.delivered(news, self._clock())

    def _post(self, news: News) -> bool:
        for pause in (*self._pauses, None):
            try:
                self._endpoint.post(message(news.alerts, external_url=self._external_url))
            except Exception as error:  # noqa: BLE001 - this thread must not die; the next write raises it
                why = error
            else:
                return True
            if pause is None or isinstance(why, RefusedError) or self._closed.wait(pause):
                break
        with self._lock:
            self._failure = (
                f"sink webhook must be able to post to {self._endpoint}, got {_words(why)}; "
                f"{self._book.waiting(self._clock())} messages wait until it can"
            )
        return False


def _words(error: Exception) -> str:
    """Return what went wrong; no more than the kind of what may quote the address."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return type(error).__name__
