"""Listening: sockets are bound before anything else starts, so that a port in use is an error of one line."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from embedwatch.core.errors import UsageError
from embedwatch.daemon.units import Address

__all__ = ["Listener", "listen"]

BACKLOG = 512
PRIVATE = 0o117
"""Umask of a Unix socket: owner and group may connect."""


@dataclass(frozen=True)
class Listener:
    """A bound socket and its address: the port is the one that was found where 0 was asked for."""

    address: Address
    socket: socket.socket

    def close(self) -> None:
        """Free the port, or remove the socket's file. Calling it again does nothing."""
        self.socket.close()
        if self.address.path is not None:
            self.address.path.unlink(missing_ok=True)


def listen(addresses: Iterable[str]) -> list[Listener]:
    """Bind every address, or none.

    Raises:
        UsageError: if one cannot be had.
    """
    found: list[Listener] = []
    for text in addresses:
        address = Address.read(text)
        try:
            bound = _port(address) if address.path is None else _unix(address.path)
        except OSError as error:
            for listener in found:
                listener.close()
            raise UsageError(f"`web.listen` must be {_reason(address, error, text)}") from error
        port = bound.getsockname()[1] if address.path is None else 0
        found.append(Listener(Address(address.host, port, address.path), bound))
    return found


def _reason(address: Address, error: OSError, text: str) -> str:
    """Return what an address must be that could not be had, what it is, and what to do."""
    got = f"got {text}: {error.strerror or error}"
    folder = None if address.path is None else address.path.absolute().parent
    if folder is not None and not folder.is_dir():
        return f"a socket in a folder that exists, {got}; make {folder}"
    if isinstance(error, socket.gaierror):
        return f"a host that is known, {got}; correct its name"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"an address of this machine, {got}; choose one that it has"
    if isinstance(error, PermissionError):
        return f"an address that this user may take, {got}; choose {'another folder' if folder else 'a port from 1024'}"
    if address.path is not None and address.path.exists() and not address.path.is_socket():
        return f"a path where nothing else is, got {text}; choose another, or remove what is there"
    if address.path is not None and error.errno not in (None, errno.EADDRINUSE):
        return f"a path that a socket can have, {got}; choose another"
    return f"free, {got}; stop who uses it, or choose another"


def _port(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this would let two processes share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


def _unix(path: Path) -> socket.socket:
    """Bind a Unix socket; one that a dead process left is removed, one in use is not."""
    if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
        with socket.socket(socket.AF_UNIX) as probe, suppress(ConnectionRefusedError):
            probe.connect(str(path))
            raise OSError("another process listens there")
        path.unlink()
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(PRIVATE)
    try:
        bound.bind(str(path))
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound
