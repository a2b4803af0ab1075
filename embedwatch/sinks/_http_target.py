"""Where a daemon listens: a URL, or a socket of this machine; and one POST to it, by the standard library."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from embedwatch.core.errors import UsageError

__all__ = ["HttpTarget", "Reply"]

UNIX = "unix:"
TIMEOUT = 10.0
"""Seconds for a connection, and for each read and write."""
MOST_REPLY = 1 << 16


@dataclass(frozen=True)
class Reply:
    """What was answered: a status, and after how many seconds to come again, where that was said."""

    status: int
    retry_after: float | None


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class HttpTarget:
    """An address of a daemon: `http://HOST[:PORT]`, `https://HOST[:PORT]` or `unix:/PATH`.

    Certificates are checked against those the system trusts; `SSL_CERT_FILE` names others. Proxies of the environment
    are left out of account.

    Raises:
        UsageError: if it is none of these, or holds a user, a password or a query: secrets do not belong in names.
    """

    text: str

    def __post_init__(self) -> None:
        if self.text.startswith(UNIX):
            if not self.text.removeprefix(UNIX).startswith("/"):
                raise UsageError("`target` must be unix: and an absolute path, got another; write unix:/run/x.sock")
            return
        try:
            parts = urlsplit(self.text)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            sound = False
        if not sound:
            raise UsageError(
                "`target` must be http://HOST:PORT, https://HOST:PORT or unix:/PATH, got another; "
                "write daemon:http://localhost:9477"
            )
        if parts.username is not None or parts.query or parts.fragment:
            raise UsageError(
                "`target` must be an address alone, got one with a user or a query; give the token by EMBEDWATCH_TOKEN"
            )

    @property
    def prefix(self) -> str:
        """What stands before every path."""
        return "" if self.text.startswith(UNIX) else urlsplit(self.text).path.rstrip("/")

    def connection(self) -> http.client.HTTPConnection:
        """Make a connection; it connects when it is first used."""
        if self.text.startswith(UNIX):
            return _UnixConnection(self.text.removeprefix(UNIX))
        parts = urlsplit(self.text)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=TIMEOUT)

    def post(self, connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Send a body and read the answer, whose text is thrown away.

        Raises:
            OSError: if nobody is there.
            http.client.HTTPException: if the answer is no HTTP.
        """
        connection.request("POST", f"{self.prefix}{path}", body=body, headers=headers)
        with connection.getresponse() as response:
            rest = response.read(MOST_REPLY)
            if len(rest) == MOST_REPLY:
                connection.close()  # whatever it still says
            return Reply(response.status, _seconds(response.headers.get("Retry-After")))


def _seconds(text: str | None) -> float | None:
    """Return a `Retry-After` of whole seconds; a date is left out of account."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
