"""A real daemon in a process of its own, fed with vectors window by window, and what its alerts told a receiver."""

from __future__ import annotations

import io
import json
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tests.daemon.serving import ask, send
from tests.polling import poll
from tests.server_process import ServerProcess
from tests.sinks.receiver import Receiver

__all__ = ["Change", "DaemonServer", "Feed", "Ledger", "News", "hurried_routes", "npy_body"]

LOOK = 0.05
"""Seconds between two looks at whether a window has closed."""
SECONDS = {"s": 1, "m": 60, "h": 3600}
PACE = re.compile(r"(?<=(?:_wait|erval): )(\d+)([smh])")
EXAMPLE_RECEIVER = "http://127.0.0.1:9095"


class DaemonServer(ServerProcess):
    """`embedwatch serve`, until the `with` block ends.

    Args:
        folder: for its configuration, state and log.
        interval: after which windows close.
    """

    def __init__(self, folder: Path, *, interval: str) -> None:
        super().__init__(sys.executable, folder)
        self.settings = {"evaluation": {"interval": interval}, "storage": {"path": str(folder / "state")}}
        self._write(self.settings)

    def _write(self, settings: Mapping[str, Any]) -> None:
        self._folder.joinpath("embedwatch.yaml").write_text(json.dumps(settings))  # JSON is YAML

    def arguments(self, address: str) -> Sequence[str]:
        """Return its command line for an address to listen on."""
        config = self._folder / "embedwatch.yaml"
        return ("-m", "embedwatch", "serve", f"--config.file={config}", f"--web.listen-address={address}")

    @property
    def address(self) -> str:
        """`host:port`."""
        return self.url.removeprefix("http://")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def reconfigure(self, settings: Mapping[str, Any]) -> None:
        """Change its configuration, and let it be read again."""
        assert self._process is not None
        self._write(settings)
        self._process.send_signal(signal.SIGHUP)

    def kill(self) -> None:
        """End it as a machine does that has no memory left."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Start it again where it was, and wait until it is ready."""
        self._start(self.address)
        poll(self._ready_or_dead)
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()


Change = Callable[[Tensor, int], Tensor]
"""What becomes of rows, and how many were sent since it began."""


def as_they_are(rows: Tensor, number: int) -> Tensor:
    """Return what a healthy model gives."""
    del number
    return rows


class Feed:
    """Sends one body of rows to each place whenever a window has closed, so that each window is full.

    Args:
        server: the daemon.
        model: label of the model.
        places: labels of its places.
        vectors: (N, D), sent in turn.
        rows: of one body.
    """

    def __init__(self, server: DaemonServer, model: str, places: Sequence[str], vectors: Tensor, *, rows: int) -> None:
        self._server, self._model, self._places = server, model, places
        self._bodies = vectors.split(rows)
        self._change: Change | None = as_they_are
        self._numbers = count()
        self._failure: Exception | None = None
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def go_on(self, change: Change | None = as_they_are) -> None:
        """Send rows that are changed in this way from now on, or none."""
        with self._lock:
            self._change, self._numbers = change, count()

    def check(self) -> None:
        """Raise what the thread met."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        closed = -1
        try:
            while not self._over.wait(LOOK):
                with self._lock:
                    if self._change is not None:
                        closed = self._send_after(closed, self._change)
        except Exception as error:  # noqa: BLE001 - the test raises it
            self._failure = error

    def _send_after(self, closed: int, change: Change) -> int:
        """Send if more windows than so many have closed; return how many have."""
        rounds = int(ask(self._server.port, "/api/v1/status").json["rounds"])
        if rounds != closed:
            number = next(self._numbers)
            body = npy_body(change(self._bodies[rounds % len(self._bodies)], number))
            for place in self._places:
                reply = send(self._server.port, body, f"/api/v1/ingest/{self._model}/{place}?role=pooled")
                assert reply.status == 202, reply
        return rounds


def npy_body(rows: Tensor) -> bytes:
    """Return rows as they are sent."""
    file = io.BytesIO()
    np.save(file, rows.to(torch.float32).numpy(), allow_pickle=False)
    return file.getvalue()


class News(NamedTuple):
    """One turn of one alert, as its receiver was told."""

    status: str
    receiver: str
    name: str
    place: str = ""


class Ledger:
    """What receivers of Alertmanager were told, without repetitions.

    Args:
        receiver: takes the messages of all of them.
        always: name of the alert that always fires, which is left out.
    """

    def __init__(self, receiver: Receiver, *, always: str) -> None:
        self._receiver, self._always = receiver, always

    def news(self) -> list[News]:
        """Return each turn, the earliest first."""
        last: dict[News, str] = {}
        found = []
        for body in list(self._receiver.taken):
            for alert in body["alerts"]:
                labels = alert["labels"]
                news = News(alert["status"], body["receiver"], labels["alertname"], labels.get("place", ""))
                about = news._replace(status="")
                if news.name != self._always and last.get(about) != news.status:
                    last[about] = news.status
                    found.append(news)
        return found

    def firing(self) -> set[News]:
        """Return what was told to fire and not yet to be over."""
        turns = Counter(news._replace(status="") for news in self.news())
        return {about._replace(status="firing") for about, number in turns.items() if number % 2}

    def always(self) -> int:
        """Return how often the alert that always fires was told, and to whom it belongs."""
        return sum(
            body["receiver"] == "watchdog" and body["groupLabels"]["alertname"] == self._always
            for body in list(self._receiver.taken)
        )


def hurried_routes(example: Path, folder: Path, receiver: str, *, minute: float) -> Path:
    """Write an example for Alertmanager whose minutes take so many seconds, and whose messages go to one host."""
    text = example.read_text(encoding="utf-8")
    assert EXAMPLE_RECEIVER in text
    text, paces = PACE.subn(lambda found: f"{int(found[1]) * SECONDS[found[2]] / 60 * minute * 1000:.0f}ms", text)
    assert paces >= len(SECONDS)
    path = folder / "alertmanager.yml"
    path.write_text(text.replace(EXAMPLE_RECEIVER, f"http://{receiver}"), encoding="utf-8")
    return path
