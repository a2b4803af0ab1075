"""A provider of embeddings behind HTTP, asked as OpenAI's `/v1/embeddings` is: many servers understand that."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from embedwatch.core.errors import InputError, UsageError

__all__ = ["Provider"]

TIMEOUT = 60.0
TRIES = 4
WAIT = 1.0
"""Seconds before the second try; each later wait is twice as long."""
LONGEST_WAIT = 30.0
LARGEST_ANSWER = 256 << 20
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
MOST_AT_ONCE = 64
VERSION_PATH = "/v1"


class _PassingError(Exception):
    """Nobody answered, or not now."""

    def __init__(self, told: str, wait: float = 0.0) -> None:
        super().__init__(told)
        self.wait = wait


class Provider:
    """Embeds texts over HTTP. A function as `Canary.record` and `Canary.check` take it.

    The key is read from the environment for each request, sent to this host only, and never shown: redirections are
    not followed, and what a server answers is not repeated in messages.

    Args:
        url: address of the API, `https://host/v1`, or of its `embeddings` itself.
        model: name that the provider has for its model.
        key_env: environment variable that holds the key, where one is needed.
        dimensions: asked of providers that cut vectors short; none by default.
        at_once: texts in one request, at most.
        timeout: seconds that the other side may take for each step.
        sleep: waits between tries.

    Raises:
        UsageError: if the address is not one, or holds a password; the message does not repeat it.

    Example:
        >>> Provider("https://user:secret@example.org/v1", model="m")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.UsageError: `url` must hold no user and no password, got one; name the variable that ...
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        key_env: str | None = None,
        dimensions: int | None = None,
        at_once: int = MOST_AT_ONCE,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = _parsed(url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        path = parts.path.rstrip("/") or VERSION_PATH
        self._path = path if path.endswith("/embeddings") else f"{path}/embeddings"
        if not model:
            raise UsageError("`model` must name the provider's model, got nothing; name it")
        if at_once < 1 or (dimensions is not None and dimensions < 1):
            raise UsageError("`at_once` and `dimensions` must be at least 1, got less; leave them out")
        self.model, self._key_env, self._dimensions = model, key_env, dimensions
        self._at_once, self._timeout, self._sleep = at_once, timeout, sleep

    def __repr__(self) -> str:
        return f"Provider({self.address!r}, model={self.model!r})"

    @property
    def address(self) -> str:
        """Where it is, without path and query."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._secure else 'http'}://{host}" + (f":{self._port}" if self._port else "")

    def __call__(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return a vector for each text, in their order.

        Raises:
            InputError: if the provider does not answer, or answers something else.
        """
        found: list[list[float] | None] = []
        for start in range(0, len(texts), self._at_once):
            found += self._ask(list(texts[start : start + self._at_once]))
        return found

    def _ask(self, texts: list[str]) -> list[list[float] | None]:
        asked: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            asked["dimensions"] = self._dimensions
        body = json.dumps(asked).encode()
        for turn in range(TRIES):
            try:
                return _vectors(self._post(body), len(texts), self.address)
            except _PassingError as error:
                if turn == TRIES - 1:
                    raise InputError(
                        f"{self.address} must answer, got {error} {TRIES} times; see whether it is up"
                    ) from error
                self._sleep(min(LONGEST_WAIT, max(error.wait, WAIT * 2**turn)))
        raise InputError(f"{self.address} must answer, it did not; see whether it is up")

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        if self._key_env is not None:
            key = os.environ.get(self._key_env, "").strip()
            if not key or not key.isascii() or not key.isprintable():
                raise UsageError(f"`key_env` must name a variable that holds a key, {self._key_env} holds none; set it")
            headers["Authorization"] = f"Bearer {key}"
        return headers

    def _post(self, body: bytes) -> bytes:
        headers = self._headers()
        try:
            with closing(self._connection()) as connection:
                connection.request("POST", self._path, body, headers)
                answer = connection.getresponse()
                content = answer.read(LARGEST_ANSWER + 1)
                status, wait = answer.status, answer.getheader("Retry-After", "")
        except (OSError, HTTPException) as error:
            raise _PassingError(type(error).__name__) from error
        if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _PassingError(f"status {status}", float(wait) if wait.isdigit() else 0.0)
        if status != HTTPStatus.OK:
            raise InputError(f"{self.address} must answer with vectors, got status {status}; {_advice(status)}")
        if len(content) > LARGEST_ANSWER:
            raise InputError(f"{self.address} must answer with at most {LARGEST_ANSWER >> 20} MiB, got more; ask less")
        return content

    def _connection(self) -> HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=self._timeout, context=context)
        return HTTPConnection(self._host, self._port, timeout=self._timeout)


def _advice(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "see whether the key is right"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return "redirections are not followed, so name the address it leads to"
    return "see whether address and model are right"


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or not url.isprintable() or " " in url:
        raise UsageError("`url` must be an address like https://host/v1, got something else; correct it")
    if parts.username is not None or parts.password is not None:
        raise UsageError("`url` must hold no user and no password, got one; name the variable that holds the key")
    if parts.query or parts.fragment:
        raise UsageError("`url` must end with its path, got a query or fragment; leave it out")
    return parts


def _vectors(content: bytes, count: int, address: str) -> list[list[float] | None]:
    """Return the vectors of an answer in the order of the texts, `None` for one that is missing."""
    try:
        data = json.loads(content)["data"]
        found: list[list[float] | None] = [None] * count
        for place, entry in enumerate(data):
            number = entry.get("index", place) if isinstance(entry, Mapping) else -1
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
                raise ValueError("an index that was not asked for")
            found[number] = _numbers(entry.get("embedding"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error, struct.error) as error:
        raise InputError(
            f"{address} must answer with JSON as OpenAI's embeddings do, got something else; correct the address"
        ) from error
    if not any(found):
        raise InputError(f"{address} must answer with vectors, got none for {count}; see whether the model embeds")
    return found


def _numbers(given: Any) -> list[float] | None:
    """Return a vector that came as numbers, or as float32 in base64."""
    if given is None:
        return None
    if isinstance(given, str):
        packed = base64.b64decode(given, validate=True)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return [float("nan") if number is None else float(number) for number in given]
