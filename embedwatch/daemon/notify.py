"""Notify: tells systemd how it goes, where systemd asked for it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

__all__ = ["notify", "watchdog_interval"]

MICRO = 1e-6


def notify(state: str) -> None:
    """Send one line, such as `READY=1`, to whoever started the process; without such a one do nothing."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode("utf-8"), where.replace("@", "\0", 1))


def watchdog_interval() -> float | None:
    """Return the seconds between two signs of life, half of what systemd waits, or `None` where it does not."""
    try:
        waits = float(os.environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return waits * MICRO / 2 if waits > 0 else None
