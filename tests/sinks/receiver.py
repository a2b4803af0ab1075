"""A real HTTP server that takes what is posted, and answers as a test wants it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["Receiver"]


class Receiver:
    """Takes posts on a free port, or on a given one, until its `with` block ends.

    Args:
        status: of its answers; may be changed.
        port: 0 picks a free one.
        secret: path that is posted to.
    """

    def __init__(self, *, status: int = 200, port: int = 0, secret: str = "/hook?token=geheim") -> None:
        self.status = status
        self.requests: list[tuple[str, Mapping[str, str]]] = []
        self.bodies: list[dict[str, Any]] = []
        """What was posted, also where the answer was no."""
        self.taken: list[dict[str, Any]] = []
        """What was posted and taken."""
        self.open = threading.Event()
        """No answer comes until this is set."""
        self.open.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}{secret}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.requests.append((self.path, dict(self.headers)))
                receiver.bodies.append(body)
                receiver.open.wait()
                status = receiver.status
                if status < 300:
                    receiver.taken.append(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                del arguments

        return Handler

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Go away: the port refuses connections. Calling it again does nothing."""
        self.open.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
