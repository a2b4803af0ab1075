"""Receiving: a body becomes a parcel in the heart. Bytes are counted as they come, and those held are bounded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count
from secrets import token_hex
from typing import Any, TypeVar

import anyio
from anyio.to_thread import run_sync
from fastapi import Request
from starlette.requests import ClientDisconnect

from embedwatch.core.errors import InputError, MergeError, UsageError
from embedwatch.core.snapshot import Space
from embedwatch.daemon import bodies
from embedwatch.daemon.answers import Refusal, again_after
from embedwatch.daemon.bodies import ENCODINGS, PARCEL_TYPE, ROW_TYPES
from embedwatch.daemon.heart import Draining, Full, Heart, Refused
from embedwatch.daemon.live import Live
from embedwatch.daemon.units import size_text
from embedwatch.parcels import Parcel, parcel_of_batch

__all__ = ["Receiving"]

SOON = 1.0
"""Seconds after which there may be a free hand."""
READERS = 2
"""Bodies that are worked on at once, while others are read; more threads would hold scrapes up."""
LARGE = 1 << 20
"""Bytes of a body from which on one is worked on at a time: its copies take memory."""
Made = TypeVar("Made")


@dataclass
class _Held:
    """Bytes of one body that are there."""

    size: int = 0


class Receiving:
    """Takes bodies: each of at most so many bytes and seconds, and all at once of so many bytes.

    Args:
        heart: keeps what is accepted.
        live: the limits in use.
        clock: seconds since the epoch.
    """

    def __init__(self, heart: Heart, live: Live, *, clock: Callable[[], float] = time.time) -> None:
        self._heart, self._live, self._clock = heart, live, clock
        self._busy, self._held = 0, 0  # whole bodies that wait or are worked on; bytes of these and of unfinished ones
        self._nobody, self._numbers = f"http-{token_hex(8)}", count()  # for senders that never repeat
        self._readers = anyio.CapacityLimiter(READERS)
        self._large, self._json = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

    async def rows(
        self, request: Request, space: Space, *, role: str, step: int | None, sender: str, number: int | None
    ) -> int:
        """Take rows of one Space; return their number.

        Raises:
            Refusal: with the answer for a request that cannot be accepted.
        """
        kind = _content_type(request, ROW_TYPES)
        told: dict[str, Any] = {"role": role, "step": step, "time": self._clock(), "sender": sender, "number": number}
        if not sender:
            told |= {"sender": self._nobody, "number": next(self._numbers)}
        self._require_room()
        async with self._body(request) as body:
            return await self._in_thread(request, body, partial(self._accept_rows, kind=kind, space=space, told=told))

    async def parcel(self, request: Request) -> int:
        """Take a parcel; return the number of its rows.

        Raises:
            Refusal: with the answer for a request that cannot be accepted.
        """
        _content_type(request, (PARCEL_TYPE,))
        self._require_room()
        async with self._body(request) as body:
            return await self._in_thread(request, body, self._accept_parcel)

    def _accept_rows(self, body: bytes, *, kind: str, space: Space, told: dict[str, Any]) -> int:
        web = self._live.config.web
        limits = bodies.Limits(body=web.max_body, json=web.max_json, rows=web.max_rows, dimension=web.max_dimension)
        batch = bodies.read_rows(body, kind, limits=limits)
        found = Space(space.model, space.place, batch.segment if space.segment == "all" else space.segment)
        parcel = parcel_of_batch(batch, found, **told)
        self._heart.accept(parcel, batch=batch)
        return parcel.rows

    def _accept_parcel(self, body: bytes) -> int:
        parcel = Parcel.from_bytes(body)
        self._heart.accept(parcel, data=body)
        return parcel.rows

    def _require_room(self) -> None:
        """Ask whoever comes while enough whole bodies wait to come again."""
        if not self._heart.ready:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "not ready to take anything; try again", again_after(SOON))
        if self._busy >= self._live.config.web.max_ingesting:
            raise _too_many()

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[list[bytes]]:
        """Hold a body. A slow sender takes no room but that of the bytes it sent, so that many keep nobody out."""
        held = _Held()
        try:
            yield await self._read(request, held)
        finally:
            self._held -= held.size

    async def _read(self, request: Request, held: _Held) -> list[bytes]:
        """Read the parts of a body, however long it claims to be."""
        web = self._live.config.web
        too_large = Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body must be at most {size_text(web.max_body)}; send fewer rows at a time",
        )
        claimed = request.headers.get("content-length", "")
        if claimed.isdecimal() and (len(claimed) > len(str(web.max_body)) or int(claimed) > web.max_body):
            raise too_large
        parts: list[bytes] = []
        try:
            with anyio.fail_after(web.timeout):
                async for part in request.stream():
                    held.size += len(part)
                    self._held += len(part)
                    if held.size > web.max_body:
                        raise too_large
                    if self._held > web.max_ingesting * web.max_body:
                        raise _too_many()
                    parts.append(part)
        except TimeoutError as error:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body must come faster; send fewer rows at a time") from error
        except ClientDisconnect as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body must be whole") from error
        return parts

    async def _in_thread(self, request: Request, parts: list[bytes], work: Callable[[bytes], Made]) -> Made:
        """Join and unpack a body and work on it, away from the loop that answers scrapes; turn errors into answers."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ENCODINGS:
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding must be one of {', '.join(ENCODINGS)}")
        limit = self._live.config.web.max_body

        def unpack_and_work() -> Made:
            body = b"".join(parts)
            parts.clear()
            return work(bodies.decompressed(body, encoding, limit=limit))

        self._busy += 1
        try:
            async with self._turn(request, sum(map(len, parts))):
                return await run_sync(unpack_and_work, limiter=self._readers)
        except bodies.TooLarge as error:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
        except bodies.UnknownType as error:
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, str(error)) from error
        except (InputError, MergeError) as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error
        except Full as error:
            raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, str(error), again_after(error.retry_after)) from error
        except Draining as error:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), again_after(error.retry_after)) from error
        except UsageError as error:
            if isinstance(error, Refused) and error.reason == "too_large":
                raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        finally:
            self._busy -= 1

    def _turn(self, request: Request, size: int) -> AbstractAsyncContextManager[object]:
        """Return what lets one body of its sort in at a time, where two would not be ready sooner than one by one."""
        if request.headers.get("content-type", "").startswith("application/json"):
            return self._json  # Python parses one at a time anyway, and scrapes wait for each
        return self._large if size > LARGE else nullcontext()


def _too_many() -> Refusal:
    return Refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many senders at once; try again", again_after(SOON))


def _content_type(request: Request, known: Collection[str]) -> str:
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in known:
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be one of {', '.join(known)}")
    return found
