"""Sends what was seen to a daemon, where windows of several processes become one truth."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from embedwatch.core.errors import EmbedwatchError, UsageError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict
from embedwatch.sinks._http_target import HttpTarget
from embedwatch.sinks._outbox import Outbox

if TYPE_CHECKING:
    from embedwatch.parcels import Parcel

log = logging.getLogger(__name__)

PATH = "/api/v1/parcels"
CONTENT_TYPE = "application/vnd.embedwatch.parcel"
TOKEN = "EMBEDWATCH_TOKEN"  # noqa: S105 - the name of the variable, not its value
CAPACITY = 256 << 20
"""Windows of all places are closed at once: 5 MB each at D = 768, 20 MB at D = 1,536."""
PATIENCE = 300.0
"""Seconds: a daemon that restarts is back by then."""
CLOSE_SECONDS = 10.0


class NotDeliveredError(EmbedwatchError, RuntimeError):
    """What was given to a daemon did not arrive."""


class Daemon(Sink):
    """Sends closed windows, whose statistics still merge, to `embedwatch serve`; one thread does so, and nobody waits.

    Several workers that watch copies of one model become one Space there, judged as if one process had seen all rows.
    Windows that no room is left for, that are refused, or that cannot be delivered for minutes, are dropped and
    counted; the first of them raises once, so that it is a finding, and no other does until a delivery succeeds again.
    Each delivery carries who sends and a number that rises, so that one that is repeated does no harm. In a process
    that was forked it becomes another sender.

    Args:
        target: `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`.
        token: sent as bearer token; by default what the variable `EMBEDWATCH_TOKEN` holds. Never logged.
        capacity: the most bytes that may wait.
        patience: seconds after which a delivery is given up.
        close_seconds: how long `close` may take.

    Raises:
        UsageError: if the target is no address, or the token cannot be sent in a header.
    """

    name = "daemon"
    title = "daemon"
    target = "http://HOST:PORT|unix:/PATH"
    wants_windows = True

    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        capacity: int = CAPACITY,
        patience: float = PATIENCE,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self.address = HttpTarget(target)
        self._headers = {"Content-Type": CONTENT_TYPE, **_authorization(token)}
        self._capacity, self._patience, self._close_seconds = capacity, patience, close_seconds
        self._start()

    def _start(self) -> None:
        """Begin as a sender of one's own."""
        self._pid, self._lock, self._number = os.getpid(), threading.Lock(), 0
        self.sender = f"{socket.gethostname()[:200]}-{self._pid}-{secrets.token_hex(4)}"
        """Host, process and chance: no two sinks are the same."""
        self._outbox = Outbox(self.address, PATH, self._headers, capacity=self._capacity, patience=self._patience)
        self._told = False
        self._known = (0, 0)

    @property
    def dropped(self) -> dict[str, int]:
        """Deliveries that were given up, by reason."""
        return dict(self._outbox.dropped)

    @property
    def delivered(self) -> int:
        """Deliveries that were accepted."""
        return self._outbox.delivered

    @property
    def waiting(self) -> int:
        """Deliveries that are still to be made."""
        return self._outbox.waiting

    def write_window(self, window: Any, snapshot: Snapshot) -> None:
        """Send the states of a closed window."""
        from embedwatch.parcels import parcel_of_window

        self._send(lambda number: parcel_of_window(window, snapshot, sender=self.sender, number=number))

    def write(self, snapshot: Snapshot, verdicts: Sequence[Verdict], exhibits: Sequence[Exhibit] = ()) -> None:
        """Send a Snapshot that no window stands behind; the daemon judges it itself."""
        from embedwatch.parcels import parcel_of_snapshot

        del verdicts, exhibits
        self._send(lambda number: parcel_of_snapshot(snapshot, sender=self.sender, number=number))

    def _send(self, made: Callable[[int], Parcel]) -> None:
        if os.getpid() != self._pid:
            self._start()
        with self._lock:
            parcel = made(self._number)
            self._number += 1
            self._outbox.put(parcel.to_bytes())
        self._tell()

    def _tell(self) -> None:
        """Raise once when deliveries are being lost; be quiet until they succeed again.

        Raises:
            NotDeliveredError: for the first loss since the last success.
        """
        delivered, lost = self._outbox.delivered, self._outbox.dropped.total()
        (was_delivered, was_lost), self._known = self._known, (delivered, lost)
        if delivered > was_delivered and self._told:
            log.warning("embedwatch: the daemon takes deliveries again; %d were lost in all", lost)
            self._told = False
        if lost > was_lost and not self._told:
            self._told = True
            reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(self._outbox.dropped.items()))
            raise NotDeliveredError(
                f"the daemon must take what is sent, got {lost} losses ({reasons}); see that it runs and its log"
            )

    def close(self) -> None:
        """Send what waits, for some seconds, and end. Calling it again does nothing."""
        if os.getpid() != self._pid:
            return
        lost = self._outbox.dropped.total()
        self._outbox.close(self._close_seconds)
        if self._outbox.dropped.total() > lost:
            log.warning(
                "embedwatch: %d deliveries to the daemon were lost at the end", self._outbox.dropped.total() - lost
            )


def _authorization(token: str | None) -> dict[str, str]:
    secret = os.environ.get(TOKEN, "") if token is None else token
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise UsageError(f"`token` must be printable ASCII without spaces, got another; look into {TOKEN}")
    return {"Authorization": f"Bearer {secret}"} if secret else {}
