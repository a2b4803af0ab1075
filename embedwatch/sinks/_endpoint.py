"""An endpoint that JSON is posted to. Its address may hold a secret, and is never shown."""

from __future__ import annotations

import base64
import ssl
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit

from embedwatch.core.errors import UsageError
from embedwatch.exposition import VERSION

__all__ = ["Endpoint", "RefusedError"]

SCHEMES = ("http", "https")
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Refusals that may not be repeated."""


class RefusedError(ConnectionError):
    """The endpoint answered, and does not want this: asking again at once would change nothing."""


class Endpoint:
    """Posts JSON to one address.

    Args:
        url: `http://` or `https://`; a user and a password before the host are sent as basic authentication.
        timeout: seconds that the other side may take for each step.

    Raises:
        UsageError: if the address is not one. The message does not repeat it.
    """

    def __init__(self, url: str, *, timeout: float) -> None:
        parts, port = _parsed(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout = timeout
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"embedwatch/{VERSION}",
            "Connection": "close",
        }
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"

    def __str__(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._secure else 'http'}://{host}" + (f":{self._port}" if self._port else "")

    def post(self, body: bytes) -> None:
        """Post once. Redirections are not followed.

        Raises:
            RefusedError: if the answer says that this will never do.
            OSError: if nobody answers, or the answer is that it did not work.
        """
        with closing(self._connection()) as connection:
            try:
                connection.request("POST", self._path, body, self._headers)
                status = connection.getresponse().status
            except HTTPException as error:
                raise ConnectionError(f"no HTTP answer, but {type(error).__name__}") from error
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return
        if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise ConnectionError(f"status {status}")
        raise RefusedError(f"status {status}")

    def _connection(self) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return HTTPConnection(self._host, self._port, timeout=self._timeout)


def _parsed(url: str) -> tuple[SplitResult, int | None]:
    """Return the parts of an address, and its port.

    Raises:
        UsageError: if it is not one.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in SCHEMES or not parts.hostname:
        scheme = parts.scheme if parts.scheme.isalnum() else ""
        raise UsageError(
            f"`url` must be http:// or https:// and a host, got the scheme {scheme!r}; correct the address"
        )
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError("`url` must be printable ASCII without spaces, got something else in it; write it as %20")
    return parts, port
