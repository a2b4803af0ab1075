"""A real HTTP server that embeds as OpenAI's `/v1/embeddings` does."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["ProviderServer"]

Embed = Callable[[list[str]], Any]


class ProviderServer:
    """Embeds what is posted on a free port until its `with` block ends.

    Args:
        embed: a function of texts; may be changed.
        key: that has to be sent; none by default.
        statuses: of the next answers, before all others succeed.
        headers: of each answer.
        packed: whether vectors are sent in base64, as some clients ask for.
        answer: sent instead of vectors.
    """

    def __init__(
        self,
        embed: Embed,
        *,
        key: str | None = None,
        statuses: Sequence[int] = (),
        headers: dict[str, str] | None = None,
        packed: bool = False,
        answer: bytes | None = None,
    ) -> None:
        self.embed, self.key, self.statuses, self.packed, self.answer = embed, key, list(statuses), packed, answer
        self.headers = headers or {}
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.received: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.asked.append(body)
                server.paths.append(self.path)
                server.received.append(dict(self.headers))
                allowed = server.key is None or self.headers.get("Authorization") == f"Bearer {server.key}"
                status = server.statuses.pop(0) if server.statuses else 200 if allowed else 401
                content = server.answers(body["input"]) if status == 200 else b'{"error": "no, not with this key"}'
                self.send_response(status)
                for name, value in {**server.headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: Any) -> None:
                del arguments

        return Handler

    def answers(self, texts: list[str]) -> bytes:
        if self.answer is not None:
            return self.answer
        rows = [None if row is None else [float(number) for number in row] for row in self.embed(texts)]
        data = [
            {"object": "embedding", "index": place, "embedding": self._coded(row)} for place, row in enumerate(rows)
        ]
        return json.dumps({"object": "list", "data": data[::-1]}).encode()  # the order is told by the index alone

    def _coded(self, row: list[float] | None) -> list[float] | str | None:
        if row is None or not self.packed:
            return row
        return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()

    def __enter__(self) -> ProviderServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
