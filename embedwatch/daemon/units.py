"""Durations, sizes and addresses as people write them in a configuration."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from embedwatch.core.errors import UsageError

__all__ = ["Address", "duration", "duration_text", "size", "size_text"]

SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""Units of a duration, as Prometheus has them; the largest first, which is their order in a text."""
DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,9}}){unit})?" for unit in SECONDS) + r"\Z")
SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
SIZE = re.compile(rf"(?P<number>[0-9]{{1,15}}) ?(?P<unit>{'|'.join(SIZES)})\Z")
HOST = "127.0.0.1"
LARGEST_PORT = 65_535
LONGEST_PATH = 100
"""Bytes of the path of a Unix socket: the least that a system allows is about so many."""
UNIX = "unix:"
ADDRESS = re.compile(r"(?:(?P<host>[^\s:\[\]/@]*|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})\Z")


def duration(text: str) -> float:
    """Return the seconds of a duration: numbers with a unit, the largest unit first.

    Raises:
        UsageError: if it is not one.

    Example:
        >>> duration("15m"), duration("1h30m"), duration("250ms")
        (900.0, 5400.0, 0.25)
    """
    match = DURATION.match(text)
    if not text or match is None:
        raise UsageError(f"a duration must be a number with a unit, got {text[:40]!r}; write 15m, 90s or 1h30m")
    return sum(int(count) * SECONDS[unit] for unit, count in match.groupdict().items() if count)


def duration_text(seconds: float) -> str:
    """Return the shortest text of a duration that `duration` reads back, to the millisecond.

    Example:
        >>> duration_text(5400), duration_text(0.25), duration_text(0)
        ('1h30m', '250ms', '0s')
    """
    left = round(seconds * 1000)
    found = ""
    for unit, length in SECONDS.items():
        count, left = divmod(left, round(length * 1000))
        found += f"{count}{unit}" if count else ""
    return found or "0s"


def size(text: str) -> int:
    """Return the bytes of a size.

    Raises:
        UsageError: if it is not one.

    Example:
        >>> size("8MiB"), size("1 kB")
        (8388608, 1000)
    """
    match = SIZE.match(text)
    if match is None:
        raise UsageError(f"a size must be a whole number with a unit, got {text[:40]!r}; write 8MiB or 512KiB")
    return int(match["number"]) * SIZES[match["unit"]]


def size_text(count: int) -> str:
    """Return the shortest text of a size that `size` reads back.

    Example:
        >>> size_text(8 << 20), size_text(1000), size_text(1001)
        ('8MiB', '1kB', '1001B')
    """
    fitting = [unit for unit, length in SIZES.items() if count and count % length == 0]
    unit = max(fitting, key=SIZES.__getitem__, default="B")
    return f"{count // SIZES[unit]}{unit}"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen: a host and a port, or the path of a Unix socket.

    Example:
        >>> Address.read("9477")
        Address(host='127.0.0.1', port=9477, path=None)
        >>> Address.read(":9477").host
        '0.0.0.0'
        >>> str(Address.read("[::1]:9477"))
        '[::1]:9477'
    """

    host: str = HOST
    port: int = 0
    path: Path | None = None

    @classmethod
    def read(cls, text: str) -> Address:
        """Read `[HOST]:PORT`, `PORT` (on this machine only) or `unix:PATH`.

        Raises:
            UsageError: if it is none of these.
        """
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            if not path or "\0" in path or len(path.encode("utf-8", "replace")) > LONGEST_PATH:
                raise UsageError(
                    f"a socket must have a path of 1 to {LONGEST_PATH} bytes, got {len(path)}; choose another folder"
                )
            return cls("", 0, Path(path))
        match = ADDRESS.match(text)
        if match is None or int(match["port"]) > LARGEST_PORT:
            raise UsageError(
                f"an address must be [HOST:]PORT or unix:PATH, got {text[:80]!r}; write 127.0.0.1:9477 or [::1]:9477"
            )
        host = HOST if match["host"] is None else match["host"].strip("[]") or "0.0.0.0"  # noqa: S104 -- asked for
        return cls(host, int(match["port"]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        if self.path is not None:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
