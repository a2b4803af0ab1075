"""Edge: what every request passes before and after the application: authentication, safe headers, counting."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi.responses import Response

from embedwatch.daemon.answers import SAFE_HEADERS, refusal
from embedwatch.daemon.auth import OPEN, REALM
from embedwatch.daemon.live import Live
from embedwatch.daemon.page_files import page_files

__all__ = ["Edge"]

log = logging.getLogger(__name__)
Message = Any
Scope = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
PAGE_HEADER = b"x-embedwatch-page"
"""What requests of the page carry."""
HASHERS = 1
"""Passwords that are hashed at once: guessing them must not take all processors."""


class Edge:
    """An ASGI application around another.

    Args:
        app: answers.
        live: who is let in, and where requests are counted.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], live: Live) -> None:
        self._app, self._live = app, live
        self._hashers = anyio.CapacityLimiter(HASHERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        began = time.monotonic()
        method = scope["method"]
        scope = {**scope, "method": "GET" if method == "HEAD" else method}  # the server leaves the body out
        code = 0

        async def send_safely(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                there = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in SAFE_HEADERS.items()]
                message["headers"] = [*message["headers"], *(each for each in added if each[0] not in there)]
            await send(message)

        try:
            answered = await self._refused(scope)
            await (answered or self._app)(scope, receive, send_safely)
        except Exception:
            log.exception("a request failed")
            if not code:
                failed = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; the log says where")
                await failed(scope, receive, send_safely)
        finally:
            handler = getattr(scope.get("route"), "path", None)
            self._live.metrics.count(handler, method, code)
            took = round(time.monotonic() - began, 6)
            log.debug("answered", extra={"handler": handler, "method": method, "code": code, "seconds": took})

    async def _refused(self, scope: Scope) -> Response | None:
        """Return what a request is told that may not come in; its body is not read."""
        headers = dict(scope["headers"])
        opened = scope["path"] in OPEN or scope["path"] in page_files()  # the page holds no data, and asks who comes
        if not opened and not await self._admitted(headers.get(b"authorization", b"").decode("latin-1")):
            # A browser that is asked for a password opens a dialog, at each look of the page; the page has a form.
            asked = f'Bearer realm="{REALM}"' if PAGE_HEADER in headers else self._live.gate.challenge
            challenge = {"WWW-Authenticate": asked}
            return refusal(HTTPStatus.UNAUTHORIZED, "authenticate with a token or a password", challenge)
        origin = headers.get(b"origin")
        if scope["method"] != "GET" and origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
            return refusal(HTTPStatus.FORBIDDEN, "pages of other sites may not send; use a client that is no browser")
        return None

    async def _admitted(self, authorization: str) -> bool:
        gate = self._live.gate
        if gate.is_quick(authorization):
            return gate.admits(authorization)
        return await run_sync(gate.admits, authorization, limiter=self._hashers)
