"""The write-ahead log of the state: whether damage hides transactions that were on the disk, which SQLite does not say.

SQLite takes a log up to the first frame that is not whole, since a process or machine that ended while it wrote leaves
such a tail. But each transaction is synced before the next one begins: where two more follow in the same log, what lies
before the second was whole once, and acknowledged.

References:
    SQLite, "WAL-mode File Format", https://www.sqlite.org/walformat.html
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

__all__ = ["hides_transactions", "log_of"]

HEADER = struct.Struct(">8I")
"""Magic, version, bytes of a page, checkpoints so far, two salts, two checksums."""
FRAME = struct.Struct(">6I")
"""Number of the page, size of the database after a commit or else 0, two salts, two checksums; then the page."""
MAGICS = (0x377F0682, 0x377F0683)
SALTS = slice(4, 6)
CERTAIN = 2
"""Transactions behind the damage: the first may be the one that was being written."""


def log_of(path: Path) -> Path:
    """Return where the log of a database lies."""
    return path.with_name(f"{path.name}-wal")


def hides_transactions(log: Path, taken: int) -> bool:
    """Return whether transactions that were acknowledged lie behind the frames that SQLite took of a log.

    Args:
        log: the file.
        taken: frames, as `PRAGMA wal_checkpoint` counts them.
    """
    if not log.exists():
        return False
    with log.open("rb") as file:
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            return False
        fields = HEADER.unpack(head)
        if fields[0] not in MAGICS:
            return bool(file.read(1))
        return _commits(file, fields[SALTS], fields[2], taken) >= CERTAIN


def _commits(file: IO[bytes], salts: tuple[int, ...], page: int, taken: int) -> int:
    """Count the ends of transactions behind the frames that were taken; old frames have other salts."""
    found, size = 0, FRAME.size + page
    while found < CERTAIN:
        file.seek(HEADER.size + taken * size)
        head = file.read(FRAME.size)
        if len(head) < FRAME.size:
            break
        number, committed, *rest = FRAME.unpack(head)
        found += bool(number and committed and tuple(rest[:2]) == salts)
        taken += 1
    return found
