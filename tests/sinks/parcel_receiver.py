"""A small real HTTP server that takes parcels as the daemon does: it merges windows, and remembers numbers."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from embedwatch.core.snapshot import Space
from embedwatch.parcels import Parcel, open_window
from embedwatch.window import Window

Answer = tuple[int, dict[str, str]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int] | str, handler: type[BaseHTTPRequestHandler]) -> None:
        if isinstance(address, str):
            self.address_family = socket.AF_UNIX
        super().__init__(address, handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", 0


class ParcelReceiver:
    """Listens at a free port, or at a socket in a folder; answers as it is told.

    Args:
        path: of a socket; without, a free port of this machine.
        answer: by the number of the request, from 0.
        delay: seconds before each answer.
    """

    def __init__(
        self, path: Path | None = None, *, answer: Callable[[int], Answer] = lambda _: (202, {}), delay: float = 0.0
    ) -> None:
        self.parcels: list[Parcel] = []
        """What was taken, in order, each once."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.times: list[float] = []
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = receiver._taken(self.path, dict(self.headers), body, answer)
                time.sleep(delay)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def address_string(self) -> str:
                return "somebody"

            def log_message(self, *details: object) -> None:
                del details

        self._server = _Server(("127.0.0.1", 0) if path is None else str(path), Handler)
        port = self._server.socket.getsockname()[1] if path is None else 0
        self.target = f"http://127.0.0.1:{port}" if path is None else f"unix:{path}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _taken(self, path: str, headers: dict[str, str], body: bytes, answer: Callable[[int], Answer]) -> Answer:
        with self._lock:
            given = answer(len(self.requests))
            self.requests.append((path, headers))
            self.times.append(time.monotonic())
            if given[0] == 202:
                parcel = Parcel.from_bytes(gzip.decompress(body))
                if self._last.get(parcel.sender, -1) < parcel.number:
                    self._last[parcel.sender] = parcel.number
                    self.parcels.append(parcel)
            return given

    def windows(self, order: Callable[[list[Parcel]], list[Parcel]] = list) -> dict[Space, Window]:
        """Return all windows that came, merged by Space."""
        merged: dict[Space, Window] = {}
        for parcel in order(self.parcels):
            if parcel.kind == "state":
                window = open_window(parcel)
                if parcel.space in merged:
                    merged[parcel.space].merge(window)
                else:
                    merged[parcel.space] = window
        return merged

    def __enter__(self) -> ParcelReceiver:
        return self

    def __exit__(self, *details: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
