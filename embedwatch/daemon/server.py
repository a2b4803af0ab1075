"""Server: serves a heart over HTTP until it is told to stop; then what waits is judged, and the process ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import uvicorn
from anyio.to_thread import run_sync

from embedwatch.core.errors import UsageError
from embedwatch.daemon.app import make_app
from embedwatch.daemon.connection import connection_class
from embedwatch.daemon.heart import Heart
from embedwatch.daemon.listening import Listener, listen
from embedwatch.daemon.live import Live
from embedwatch.daemon.notify import notify, watchdog_interval

__all__ = ["Server"]

log = logging.getLogger(__name__)
IDLE = 75
"""Seconds that a connection may rest between two requests; Prometheus scrapes once a minute."""
LARGEST_HEAD = 16 << 10
GOODBYE = 5
"""Seconds for answers that are on their way when the ports close."""
TURN = 0.001
"""Seconds after which a thread that judges lets one that answers go on, instead of five times as long."""
KILLED = 128
"""Beside the number of a signal: the exit status of a process that it ended."""


class Server:
    """Binds the addresses at once, and serves when it is run, or from a thread of its own.

    Args:
        heart: takes and judges; started and closed here.
        live: the configuration in use.
        background: what runs beside it, from after the start to before the end: each is started and closed.

    Raises:
        UsageError: if an address cannot be had.
    """

    def __init__(self, heart: Heart, live: Live, *, background: tuple[Any, ...] = ()) -> None:
        self._heart, self._live, self._background = heart, live, background
        self.listeners: list[Listener] = listen(live.config.web.listen)
        self._app = make_app(heart, live)
        self._servers = [
            (self._http(tls=tls), sockets)
            for tls, sockets in (
                (True, [each.socket for each in self.listeners if self._is_tls(each)]),
                (False, [each.socket for each in self.listeners if not self._is_tls(each)]),
            )
            if sockets
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._alone = False

    @property
    def urls(self) -> list[str]:
        """Where it is served."""
        return [
            str(each.address) if each.address.path else f"{'https' if self._is_tls(each) else 'http'}://{each.address}"
            for each in self.listeners
        ]

    def run(self) -> None:
        """Serve until a signal: SIGTERM and SIGINT end it when what waits is judged, a second one ends it at once.

        Raises:
            UsageError: if the heart cannot start.
        """
        sys.setswitchinterval(TURN)  # here the whole process is ours
        self._alone = True
        asyncio.run(self._serve(with_signals=True))

    def start(self) -> None:
        """Serve from a thread, and return when it is ready.

        Raises:
            UsageError: if the heart cannot start.
        """
        self._thread = threading.Thread(target=self._in_thread, name="embedwatch-daemon", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Judge what waits, and end the thread. Calling it again does nothing."""
        if self._thread is not None and self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _in_thread(self) -> None:
        try:
            asyncio.run(self._serve(with_signals=False))
        except BaseException as error:  # noqa: BLE001 -- it is raised where the thread was started
            self._failure = error
        finally:
            self._started.set()

    def _is_tls(self, listener: Listener) -> bool:
        return self._live.tls is not None and listener.address.path is None

    def _http(self, *, tls: bool) -> uvicorn.Server:
        web = self._live.config.web
        config = uvicorn.Config(
            self._app,
            http=connection_class(patience=web.timeout, most=web.max_connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=GOODBYE,
            h11_max_incomplete_event_size=LARGEST_HEAD,
        )
        config.load()
        config.ssl = self._live.tls if tls else None
        return _Http(config)

    async def _serve(self, *, with_signals: bool) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if with_signals:
            self._take_signals(self._loop, self._stop)
        serving = [asyncio.create_task(server.serve(sockets)) for server, sockets in self._servers]
        beats = asyncio.create_task(self._feed_watchdog())
        try:
            log.info("serving", extra={"at": ", ".join(self.urls)})
            await self._begin()
            stopping = asyncio.create_task(self._stop.wait())
            await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
            await self._drain()
        finally:
            beats.cancel()
            for server, _ in self._servers:
                server.should_exit = True
            await asyncio.gather(*serving)
            for listener in self.listeners:
                listener.close()
            await run_sync(self._heart.close)
            log.info("ended")

    async def _begin(self) -> None:
        """Restore what was kept; requests are answered meanwhile, though none is taken."""
        await run_sync(self._heart.start)
        for each in self._background:
            each.start()
        if self._alone:
            _settle_memory()
        notify("READY=1")
        log.info("ready")
        self._started.set()

    async def _drain(self) -> None:
        """Take nothing more, and judge what waits. Scrapes and probes are answered meanwhile."""
        notify("STOPPING=1")
        log.info("draining", extra={"seconds": self._live.config.drain})
        for each in self._background:
            await run_sync(each.close)
        if not await run_sync(self._heart.drain, self._live.config.drain):
            log.warning("not all was judged in time; the rest is kept for the next start")

    async def _feed_watchdog(self) -> None:
        """Tell systemd that judging goes on, while it does."""
        interval = watchdog_interval()
        while interval is not None:
            if self._heart.beating:
                notify("WATCHDOG=1")
            await asyncio.sleep(interval)

    def _take_signals(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        def end(number: int) -> None:
            if stop.is_set():
                self._end_now(number)
            log.info("asked to end", extra={"signal": signal.Signals(number).name})
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end, number)
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self._reload_soon(loop))

    def _reload_soon(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def reload() -> None:
            with suppress(UsageError):  # it is logged, and shown in /metrics
                self._live.reload()

        def soon() -> None:
            loop.run_in_executor(None, reload)

        return soon

    def _end_now(self, number: int) -> None:
        """End without waiting: what was accepted is stored already."""
        log.warning("asked again; ending now")
        for listener in self.listeners:
            with suppress(OSError):
                listener.close()
        os._exit(KILLED + number)


def _settle_memory() -> None:
    """Leave what the start made to nobody's collecting: looking through all of it takes a tenth of a second."""
    gc.collect()
    gc.freeze()


class _Http(uvicorn.Server):
    """A server of uvicorn that leaves signals to ours."""

    def capture_signals(self) -> Any:
        """Take none."""
        return nullcontext()
