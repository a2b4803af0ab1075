"""What can happen to the file of the state while no daemon runs."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

__all__ = ["DAMAGES"]

SEED = 30
PAGE = 4_096


def _overwrite(path: Path, *, parts: int, first: int = 0) -> None:
    """Write random bytes over some stretches of a file."""
    chance, data = random.Random(SEED), bytearray(path.read_bytes())
    for _ in range(parts):
        place = chance.randrange(first, max(len(data) - 64, first + 1))
        data[place : place + 64] = chance.randbytes(64)
    path.write_bytes(data)


def _random_bytes(path: Path) -> None:
    _checkpoint(path)
    _overwrite(path, parts=40, first=PAGE)


def _random_head(path: Path) -> None:
    _checkpoint(path)
    path.write_bytes(random.Random(SEED).randbytes(PAGE) + path.read_bytes()[PAGE:])


def _truncated(path: Path) -> None:
    _checkpoint(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 100])


def _no_database(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 1_000)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _damaged_log(path: Path) -> None:
    _overwrite(path.with_name(f"{path.name}-wal"), parts=40)


def _torn_log(path: Path) -> None:
    wal = path.with_name(f"{path.name}-wal")
    wal.write_bytes(wal.read_bytes()[: wal.stat().st_size // 2 + 100])


def _checkpoint(path: Path) -> None:
    """Bring everything into the file itself."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


DAMAGES: dict[str, Callable[[Path], None]] = {
    "random bytes": _random_bytes,
    "random head": _random_head,
    "truncated": _truncated,
    "no database": _no_database,
    "empty": _empty,
    "damaged log": _damaged_log,
    "torn log": _torn_log,
}
