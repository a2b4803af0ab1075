"""A served heart for tests: on a free port, in a folder of its own, and a client that speaks plain HTTP."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedwatch.core.sink import Sink
from embedwatch.daemon.config_file import load_config
from embedwatch.daemon.heart import Heart, HeartSettings
from embedwatch.daemon.live import Live
from embedwatch.daemon.server import Server

DEADLINE = 30.0


class Served(NamedTuple):
    heart: Heart
    live: Live
    server: Server
    port: int


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert list(self.json) == ["error"]
        assert self.body.count(b"\n") == 1
        return str(self.json["error"])


@contextmanager
def serving(
    folder: Path,
    *,
    interval: float = 3600.0,
    sinks: Sequence[tuple[Sink, bool]] = (),
    limits: Mapping[str, Any] | None = None,
    **web: Any,
) -> Iterator[Served]:
    flags = {"web": {"listen": ["127.0.0.1:0"], **web}, "log": {"level": "error"}}
    live = Live(lambda: load_config(environment={}, flags=flags))
    heart = Heart(HeartSettings(folder / "state", interval=interval, **(limits or {})), sinks=sinks)
    server = Server(heart, live)
    server.start()
    try:
        yield Served(heart, live, server, server.listeners[0].address.port)
    finally:
        server.stop()


def ask(
    port: int, path: str, method: str = "GET", body: Any = None, *, tls: ssl.SSLContext | None = None, **headers: str
) -> Reply:
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=tls)
    )
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        reply = connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def send(
    port: int, body: Any, path: str = "/api/v1/ingest/m/p", kind: str = "application/x-npy", **headers: Any
) -> Reply:
    return ask(port, path, "POST", body, Content_Type=kind, **headers)


def npy(rows: int = 50, dimension: int = 8, seed: int = 0) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32), allow_pickle=False)
    return file.getvalue()


def until(holds: Callable[[], Any], what: str) -> Any:
    """Poll with a deadline."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {DEADLINE} s")


def raw(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
