"""Serves what was written last to Prometheus."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from embedwatch.core.errors import UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._encoding import OPENMETRICS, TEXT, CollectorRegistry, Publication
from embedwatch.sinks._page_server import Page, PageServer
from embedwatch.sinks._publisher import MAX_SERIES, MAX_VALUES, Publisher

HOST = "127.0.0.1"
LARGEST_PORT = 65_535
ADDRESS = re.compile(r"(?:(?P<host>[^\s:\[\]]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})\Z")
PLAIN = "text/plain; charset=utf-8"
LANDING = b"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>embedwatch</title></head>
<body><h1>embedwatch</h1><p><a href="/metrics">Metrics</a>, <a href="/-/healthy">health</a></p></body></html>
"""


class Prometheus(Sink):
    """Serves the last window of each Space on `/metrics`, for Prometheus to scrape.

    What a scrape gets is encoded when a Snapshot is written, as text or as OpenMetrics; a scrape only compresses it.
    Counters and histograms add up over windows, so that `rate` and `histogram_quantile` are right. What has no value
    has no series. Label values and series are bounded: see `embedwatch_label_overflow_total` and
    `embedwatch_series_dropped`. There is no encryption and no password: listen where only Prometheus can reach you.

    Args:
        address: `[HOST:]PORT`, an IPv6 address in brackets; on this machine only unless a host is named. Port 0
            picks a free one.
        max_values: distinct values of one label; further ones become `other`.
        max_series: series in all; beyond, whole families of the newest Spaces are left out.
        expires: seconds after which a Space that is not heard of is left out; `None` keeps it.
        clock: seconds since the epoch.

    Example:
        >>> with Prometheus(0) as sink:
        ...     sink.url.startswith("http://127.0.0.1:")
        True
    """

    name = "prometheus"
    title = "Prometheus"
    target = "[HOST:]PORT"

    def __init__(
        self,
        address: str | int,
        *,
        max_values: int = MAX_VALUES,
        max_series: int = MAX_SERIES,
        expires: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host, port = _host_and_port(address)
        self._publisher = Publisher(
            self._deliver, max_values=max_values, max_series=max_series, expires=expires, clock=clock
        )
        try:
            self._server = PageServer(self.host, port)
        except OSError as error:
            raise UsageError(
                f"sink prometheus must be able to listen on {address}, got {error.strerror or error}; "
                "choose another port, or 0 for a free one"
            ) from error
        self.port = self._server.server_port
        self.registry = CollectorRegistry(auto_describe=False)
        """The same families, for an application that serves metrics of its own."""
        self.registry.register(self._publisher)
        self._publisher.publish()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Publish one Snapshot with its verdicts."""
        del exhibits
        self._publisher.write(snapshot, verdicts)

    def expect(self, snapshots: Sequence[Snapshot]) -> None:
        """Publish the counters of Spaces that will come, at zero."""
        self._publisher.expect(snapshots)

    def close(self) -> None:
        """Free the port. Calling it again does nothing."""
        self._server.stop()

    def _deliver(self, publication: Publication) -> None:
        metrics = (Page(TEXT, publication.text), Page(OPENMETRICS, publication.openmetrics))
        pages = {
            "/metrics": metrics,
            "/-/healthy": (Page(PLAIN, b"embedwatch is healthy.\n"),),
            "/": (Page("text/html; charset=utf-8", LANDING),),
        }
        self._server.pages = pages


def _host_and_port(address: str | int) -> tuple[str, int]:
    """Return the two parts of an address.

    Raises:
        UsageError: if it is not one.
    """
    match = ADDRESS.match(str(address))
    if match is None or int(match["port"]) > LARGEST_PORT:
        raise UsageError(f"`address` must be [HOST:]PORT, got {address!r}; write 9477 or 0.0.0.0:9477 or [::1]:9477")
    return (match["host"] or HOST).strip("[]"), int(match["port"])
