"""Request metrics: what the daemon tells about its own requests and its configuration, beside what was measured."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics

from embedwatch.exposition import RELOAD_SUCCESSFUL, RELOAD_TIME, REQUESTS

__all__ = ["RequestMetrics", "with_own"]

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
END = b"# EOF\n"
_latest: Callable[[CollectorRegistry], bytes] = generate_latest
_openmetrics: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest
FAST = 1
"""Level of gzip."""


class RequestMetrics:
    """Counts requests; every label has a bounded number of values. One thread writes, any may read."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self.reload_successful, self.reload_time = True, 0.0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, handler: str | None, method: str, code: int) -> None:
        """Count one request by the route that answered it."""
        self._requests[handler or OTHER, method if method in METHODS else OTHER, str(code)] += 1

    def collect(self) -> Iterable[Metric]:
        """Yield the families, for a registry."""
        requests = CounterMetricFamily(REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
        for labels, count in sorted(self._requests.copy().items()):
            requests.add_metric(labels, count)
        yield requests
        yield GaugeMetricFamily(RELOAD_SUCCESSFUL.name, RELOAD_SUCCESSFUL.help, int(self.reload_successful))
        yield GaugeMetricFamily(RELOAD_TIME.name, RELOAD_TIME.help, self.reload_time)

    def text(self, content_type: str) -> bytes:
        """Return the exposition in the format of a content type, without its end."""
        if content_type.startswith("application/openmetrics-text"):
            return _openmetrics(self._registry).removesuffix(END)
        return _latest(self._registry)


def with_own(
    metrics: RequestMetrics, body: bytes, headers: Mapping[str, str]
) -> tuple[Sequence[bytes], Mapping[str, str]]:
    """Put the daemon's own families before an exposition that exists already, which may be packed.

    Parts that were packed with gzip one by one make a whole when they follow one another (RFC 1952, section 2.2).
    """
    lower = {name.lower(): value for name, value in headers.items()}
    own = metrics.text(lower.get("content-type", ""))
    if lower.get("content-encoding") == "gzip":
        own = gzip.compress(own, FAST, mtime=0)
    kept = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    return (own, body), kept
