"""A small HTTP server of pages that exist already: it computes nothing, and a slow client holds nobody up."""

from __future__ import annotations

import gzip
import logging
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from weakref import WeakSet

__all__ = ["Page", "PageServer"]

log = logging.getLogger(__name__)

SILENCE = 5.0
"""Seconds that a client may neither send nor take anything."""
LIFETIME = 10.0
"""Seconds after which a connection is cut, however busily it drips."""
CONNECTIONS = 64
"""Open at once; one more cuts the oldest."""
ROUND = 0.1
"""Seconds between two looks at the age of connections."""
FAST = 1
"""Level of gzip: an exposition repeats itself, so that more effort gains little."""
Resource = Sequence["Page"]
_serving: WeakSet[PageServer] = WeakSet()


@dataclass(frozen=True)
class Page:
    """One representation of what lies at a path."""

    content_type: str
    body: bytes

    @cached_property
    def zipped(self) -> bytes:
        """The body through gzip."""
        return gzip.compress(self.body, FAST, mtime=0)

    def quality(self, accept: str) -> float:
        """Return how much an Accept header wants this page: 0 where it does not name its very type and version.

        Example:
            >>> page = Page("text/plain; version=0.0.4; charset=utf-8", b"")
            >>> page.quality("application/json, text/plain;version=0.0.4;q=0.5, */*;q=0.1")
            0.5
        """
        media, options = _parsed(self.content_type)
        found = [_parsed(wanted) for wanted in accept.split(",")]
        fitting = [
            _number(asked.get("q", "1"))
            for kind, asked in found
            if kind == media and asked.get("version", options.get("version")) == options.get("version")
        ]
        return max(fitting, default=0.0)


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    """Return a media type or coding, and its parameters."""
    kind, *options = (part.strip().lower() for part in text.split(";"))
    return kind, {name.strip(): value.strip() for name, _, value in (option.partition("=") for option in options)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class PageServer(ThreadingHTTPServer):
    """Serves pages by path from a thread of its own: GET and HEAD, one request for each connection.

    Args:
        host: a name or an address to listen on.
        port: 0 picks a free one.

    Raises:
        OSError: if nobody can listen there.
    """

    daemon_threads = True
    allow_reuse_port = False
    request_queue_size = CONNECTIONS

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages: Mapping[str, Resource] = {}
        self._connections: dict[Any, float] = {}
        self._guard = threading.Lock()
        super().__init__((host, port), _Handler)
        _serving.add(self)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(ROUND,), name=f"embedwatch-http-{self.server_port}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Free the port and cut what is connected. Calling it again does nothing."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()
        self._cut(float("-inf"))

    def server_bind(self) -> None:
        """Listen, without the look-up of a host name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def service_actions(self) -> None:
        """Cut connections that are too old; called between requests."""
        self._cut(LIFETIME)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, and cut the oldest where there are too many."""
        with self._guard:
            if len(self._connections) >= CONNECTIONS:
                _hang_up(next(iter(self._connections)))
                del self._connections[next(iter(self._connections))]
            self._connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that was served."""
        with self._guard:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note a client that went away; nobody else is concerned."""
        log.debug("connection from %s ended early: %r", client_address, sys.exc_info()[1])

    def _cut(self, age: float) -> None:
        now = time.monotonic()
        with self._guard:
            for request, began in self._connections.items():
                if now - began > age:
                    _hang_up(request)


def _hang_up(connection: socket.socket) -> None:
    """Wake the thread of a connection: it reads the end, and closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = SILENCE
    error_content_type: ClassVar[str] = "text/plain; charset=utf-8"  # type: ignore[misc]

    def do_GET(self) -> None:
        resource = self.server.pages.get(self.path.partition("?")[0])
        if resource is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        accept = self.headers.get("Accept", "")
        page = max(resource, key=lambda page: page.quality(accept))
        coding = dict(map(_parsed, self.headers.get("Accept-Encoding", "").split(",")))
        zipped = "gzip" in coding and _number(coding["gzip"].get("q", "1")) > 0
        self._reply(HTTPStatus.OK, page.content_type, page.zipped if zipped else page.body, zipped=zipped)

    def do_HEAD(self) -> None:
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with the bare status: what was asked for is not repeated."""
        del message, explain
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._reply(status, self.error_content_type, f"{status.value} {status.phrase}\n".encode())

    def _reply(self, status: HTTPStatus, content_type: str, body: bytes, *, zipped: bool = False) -> None:
        self.close_connection = True
        self.send_response_only(status)
        headers = {
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Content-Encoding": "gzip" if zipped else "",
            "Allow": "GET, HEAD" if status == HTTPStatus.METHOD_NOT_ALLOWED else "",
            "Cache-Control": "no-store",
            "Vary": "Accept, Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
        }
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the name that the base has
        log.debug(format, *args)


def _let_go() -> None:
    """Close what a fork copied: a worker of a data loader would keep the port after the sink is closed."""
    for server in list(_serving):
        server.socket.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
