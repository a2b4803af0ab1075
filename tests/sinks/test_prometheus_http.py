"""The HTTP side of the Prometheus sink: what it answers, and who cannot disturb it."""

from __future__ import annotations

import gzip
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from prometheus_client.openmetrics import parser

from embedwatch.core import Metric, Provenance, Snapshot, Space, UsageError
from embedwatch.core.registry import get
from embedwatch.core.sink import Sink
from embedwatch.sinks import _page_server
from embedwatch.sinks._encoding import OPENMETRICS, TEXT
from embedwatch.sinks.prometheus import Prometheus
from tests.polling import poll
from tests.server_process import free_port
from tests.sinks.scraping import fetch

SCRAPER = (  # what Prometheus 2.42 sends
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
parsed: Callable[[str], Iterable[Any]] = parser.text_string_to_metric_families
COSINE = Metric("mean_cosine", "Mean cosine of two rows.")


def snapshot(value: float, place: str = "pooled") -> Snapshot:
    return Snapshot(Space("m", place), (COSINE.measure(value),), Provenance(time=5.0, rows=100))


@pytest.fixture
def sink() -> Iterator[Prometheus]:
    with Prometheus(0) as made:
        made.write(snapshot(0.25), [])
        yield made


def root(sink: Prometheus) -> str:
    return sink.url.removesuffix("/metrics")


def listens(address: str) -> bool:
    """Whether this machine has this address of version 6."""
    try:
        with socket.create_server((address, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def raw(sink: Prometheus, request: bytes) -> bytes:
    """Return everything that comes back for these bytes."""
    with socket.create_connection((sink.host, sink.port), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html, */*;q=0.8", TEXT),
        (SCRAPER, OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0", TEXT),
        (";;q=x,,=,application/openmetrics-text;q=much", TEXT),
    ],
)
def test_the_format_is_the_one_that_is_wanted(sink: Prometheus, accept: str, content_type: str) -> None:
    answer = fetch(sink.url, {"Accept": accept})
    assert (answer.status, answer.headers["Content-Type"]) == (200, content_type)
    assert answer.body.endswith(b"# EOF\n") == (content_type == OPENMETRICS)


@pytest.mark.parametrize(
    ("coding", "zipped"), [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("", False)]
)
def test_gzip_is_sent_to_those_who_take_it(sink: Prometheus, coding: str, zipped: bool) -> None:
    answer = fetch(sink.url, {"Accept-Encoding": coding})
    assert ("Content-Encoding" in answer.headers) == zipped
    text = gzip.decompress(answer.body) if zipped else answer.body
    assert text == fetch(sink.url).body


def test_other_paths(sink: Prometheus) -> None:
    assert fetch(root(sink) + "/-/healthy").status == 200
    assert b'href="/metrics"' in fetch(root(sink) + "/").body
    assert fetch(sink.url + "?a=b").status == 200
    for path in ("/metrics/", "/favicon.ico", "/..", "/<script>", "http://h/metrics"):
        answer = raw(sink, f"GET {path} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert answer.endswith(b"\r\n\r\n404 Not Found\n")


def test_only_get_and_head(sink: Prometheus) -> None:
    head, get_ = fetch(sink.url, method="HEAD"), fetch(sink.url)
    assert (head.status, head.body) == (200, b"")
    assert head.headers == get_.headers
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        refused = fetch(sink.url, method=method)
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_nothing_tells_what_serves(sink: Prometheus) -> None:
    answers = [fetch(root(sink) + path) for path in ("/metrics", "/", "/nowhere")] + [fetch(sink.url, method="POST")]
    for answer in answers:
        assert "Server" not in answer.headers
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert b"ython" not in answer.body


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
    ],
)
def test_nonsense_is_answered_or_cut_and_the_next_is_served(
    sink: Prometheus, request_: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_page_server._Handler, "timeout", 0.3)
    answer = raw(sink, request_)
    assert b" 200 " not in answer.split(b"\r\n")[0]
    assert fetch(sink.url).status == 200
    assert capfd.readouterr().err == ""


def test_scrapes_during_writes_are_whole(sink: Prometheus) -> None:
    stop = threading.Event()
    seen: list[int] = []

    def scrape() -> None:  # what it raises fails the test, since warnings are errors
        while not stop.is_set():
            families = parsed(fetch(sink.url, {"Accept": SCRAPER}).body.decode())
            seen.append(sum(len(family.samples) for family in families if family.name == "embedwatch_mean_cosine"))

    def write(part: int) -> None:
        for index in range(40):
            sink.write(snapshot(index, f"p{part}.{index}"), [])

    scrapers = [threading.Thread(target=scrape) for _ in range(4)]
    writers = [threading.Thread(target=write, args=(part,)) for part in range(2)]
    for thread in (*scrapers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    poll(lambda: 81 in seen or not any(thread.is_alive() for thread in scrapers))
    stop.set()
    for thread in scrapers:
        thread.join()
    assert len(set(seen)) > 2
    assert max(seen) == 81


def test_a_scrape_sends_bytes_that_exist(sink: Prometheus) -> None:
    with sink._publisher._lock:  # whoever had to compute would have to wait for it
        assert fetch(sink.url, {"Accept": SCRAPER, "Accept-Encoding": "gzip"}).status == 200


def test_slow_clients_hurt_nobody_and_are_cut(sink: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_page_server, "CONNECTIONS", 8)
    monkeypatch.setattr(_page_server, "LIFETIME", 1.0)
    slow = [socket.create_connection((sink.host, sink.port), timeout=10) for _ in range(20)]
    for connection in slow:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    assert fetch(sink.url).status == 200
    dripping = slow[-1]

    def cut() -> bool:
        try:
            dripping.sendall(b"y")  # busy all the time, and cut all the same
        except OSError:
            return True
        return False

    poll(cut)
    poll(lambda: not sink._server._connections)
    for connection in slow:
        connection.close()


def test_silent_clients_are_cut(sink: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_page_server._Handler, "timeout", 0.2)
    began = time.monotonic()
    assert raw(sink, b"GET /metrics HTTP/1.1\r\n") == b""
    assert time.monotonic() - began < _page_server.LIFETIME


def test_a_port_in_use_is_one_clear_error() -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"listen on {port}, got Address already in use; choose another port"):
            Prometheus(port)
    with Prometheus(port), pytest.raises(UsageError, match="already in use"):
        get(Sink, "prometheus").open(str(port))


def test_close_frees_the_port_at_once_and_twice() -> None:
    port = free_port()
    for _ in range(3):
        sink = Prometheus(port)
        assert fetch(sink.url).status == 200
        sink.close()
        sink.close()
        sink.write(snapshot(1.0), [])  # a late window does no harm
        with pytest.raises(OSError, match="refused"):
            fetch(sink.url)


def test_two_sinks_stand_side_by_side(sink: Prometheus) -> None:
    with Prometheus(0) as other:
        other.write(snapshot(0.75), [])
        assert b"} 0.75\n" in fetch(other.url).body
        assert b"} 0.75\n" not in fetch(sink.url).body


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("0", "http://127.0.0.1:"),
        (0, "http://127.0.0.1:"),
        ("localhost:0", "http://localhost:"),
        ("0.0.0.0:0", "http://0.0.0.0:"),
        *([("[::1]:0", "http://[::1]:")] if listens("::1") else []),
    ],
)
def test_addresses(address: str | int, url: str) -> None:
    with Prometheus(address) as sink:
        assert sink.port > 0
        assert sink.url == f"{url}{sink.port}/metrics"
        assert fetch(sink.url).status == 200


@pytest.mark.parametrize(
    "address", ["", "metrics", "-1", "65536", "127.0.0.1", "host:", ":9477", "::1:9477", "a b:1", "1\n"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=r"`address` must be \[HOST:\]PORT"):
        Prometheus(address)


@pytest.mark.parametrize("address", ["host.invalid:0", "192.0.2.1:0"])
def test_where_nobody_can_listen_is_a_clear_error(address: str) -> None:
    with pytest.raises(UsageError, match="must be able to listen on"):
        Prometheus(address)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_does_not_keep_the_port() -> None:
    sink = Prometheus(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # a worker of a data loader, that outlives the sink
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    try:
        sink.close()
        with pytest.raises(OSError, match="refused"):
            fetch(sink.url)
    finally:
        os.close(write)
        os.waitpid(child, 0)
