"""Connection: HTTP/1.1 of uvicorn with patience that ends, so that slow clients take nobody's place."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["connection_class"]


class _Connection(H11Protocol):
    """A connection whose request must be whole, and its answer taken, by a deadline.

    Too many connections cut the one that has waited longest for its client; where all are being answered, the new one
    is turned away.
    """

    patience: ClassVar[float]
    most: ClassVar[int]
    _deadline: asyncio.TimerHandle | None = None
    _began: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        self._began = self.loop.time()
        if len(self.connections) >= self.most:
            waiting = [each for each in self.connections if isinstance(each, _Connection) and each._waits]
            victim = min(waiting, key=lambda each: each._began, default=None)
            (transport if victim is None else victim.transport).abort()
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; each request has its own deadline."""
        cycle = self.cycle
        if self._deadline is None:
            self._wait()
        super().data_received(data)
        if self.cycle is not cycle:
            self._wait()

    def on_response_complete(self) -> None:
        """Stop waiting where the request was read to its end and the answer is on its way."""
        if self.conn.their_state is h11.DONE and not self.transport.get_write_buffer_size():
            self._rest()
        cycle = self.cycle
        super().on_response_complete()
        if self.cycle is not cycle:
            self._wait()

    @property
    def _waits(self) -> bool:
        """Whether it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _wait(self) -> None:
        self._rest()
        self._began = self.loop.time()
        self._deadline = self.loop.call_later(self.patience, self._give_up)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        """Cut the connection, unless it rests between two requests."""
        self._deadline = None
        rests = self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.IDLE
        if not rests or self.transport.get_write_buffer_size() or self.conn.trailing_data[0]:
            self.transport.abort()


def connection_class(*, patience: float, most: int) -> type[Any]:
    """Return the class of connections that wait so many seconds, and are so many at most."""
    return type("Connection", (_Connection,), {"patience": patience, "most": most})
