"""Scrapes of a daemon by a thread, as Prometheus does them, though ten a second; and how long they took."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from types import TracebackType

PERIOD = 0.1
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Scrapes:
    """Scrapes until the `with` block ends.

    Args:
        port: of the daemon on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._seconds: list[float] = []
        self._failed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Scrapes:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        while not self._stop.wait(PERIOD):
            began = time.monotonic()
            try:
                connection.request("GET", "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
                reply = connection.getresponse()
                reply.read()
                self._failed += reply.status != 200
                self._seconds.append(time.monotonic() - began)
            except (OSError, http.client.HTTPException):
                self._failed += 1
                connection.close()
        connection.close()

    def figures(self) -> dict[str, float]:
        """Return how many there were, and their latency in milliseconds."""
        cuts = statistics.quantiles(self._seconds, n=100, method="inclusive")
        return {
            "scrapes": len(self._seconds),
            "scrapes_failed": self._failed,
            "scrape_p50_ms": 1e3 * cuts[49],
            "scrape_p99_ms": 1e3 * cuts[98],
            "scrape_max_ms": 1e3 * max(self._seconds),
        }
