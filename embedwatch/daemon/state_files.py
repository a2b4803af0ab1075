"""Files of the state: opened, looked through, brought to this version, held by one process, moved aside if damaged."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from embedwatch.core.errors import UsageError
from embedwatch.daemon.state_log import hides_transactions, log_of

__all__ = ["MEMORY", "SCHEMA_VERSION", "NewerError", "Opened", "connect", "hold", "set_aside"]

LOCK = "lock"
BUSY_SECONDS = 5.0
MEMORY = ":memory:"
"""What SQLite calls a database that lies nowhere."""

MIGRATIONS = (
    (
        "CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, parcel BLOB NOT NULL)",
        "CREATE TABLE windows (space TEXT PRIMARY KEY, parcel BLOB NOT NULL)",
        "CREATE TABLE snapshots (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, snapshot TEXT NOT NULL)",
        "CREATE INDEX snapshots_of ON snapshots (space, id)",
        """CREATE TABLE deliveries (
            id INTEGER PRIMARY KEY AUTOINCREMENT, sender TEXT NOT NULL, number INTEGER NOT NULL, UNIQUE (sender, number)
        )""",
    ),
    (
        """CREATE TABLE verdicts (
            space TEXT NOT NULL, name TEXT NOT NULL, since REAL NOT NULL, verdict TEXT NOT NULL,
            PRIMARY KEY (space, name)
        )""",
    ),
    ("ALTER TABLE verdicts ADD COLUMN reference TEXT NOT NULL DEFAULT ''",),
    (
        "CREATE TABLE statuses (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, status TEXT NOT NULL)",
        "CREATE INDEX statuses_of ON statuses (space, id)",
        "CREATE TABLE turns (id INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, turn TEXT NOT NULL)",
        "CREATE INDEX turns_of ON turns (space, id)",
    ),
)
"""What makes each version of the schema out of the one before; the first, out of an empty file."""
SCHEMA_VERSION = len(MIGRATIONS)


class NewerError(UsageError):
    """The file is of a later version; it is no damage."""


class Opened(NamedTuple):
    """A database, and a copy of its log where damage in that hides what was acknowledged."""

    database: sqlite3.Connection
    damaged: Path | None = None


def connect(path: str) -> Opened:
    """Open a database, look whether it is whole, and bring it to this version.

    Raises:
        sqlite3.DatabaseError: if it is damaged.
    """
    _require_content(Path(path))
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        damaged = _kept_log(database, Path(path))
        if database.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("pages contradict one another")
        _migrate(database, path)
    except BaseException:
        database.close()
        raise
    return Opened(database, damaged)


def _require_content(path: Path) -> None:
    """Refuse an empty file with a log that is none: SQLite would throw the log away.

    Raises:
        sqlite3.DatabaseError: if it is one; the file has a page before there is a log.
    """
    log = log_of(path)
    if path.is_file() and not path.stat().st_size and log.is_file() and log.stat().st_size:
        raise sqlite3.DatabaseError("the file is empty, and its log is not")


def _kept_log(database: sqlite3.Connection, path: Path) -> Path | None:
    """Copy the log where damage in it hides transactions, before it is written over."""
    taken = int(database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])
    if path.name == MEMORY or not hides_transactions(log_of(path), max(taken, 0)):
        return None
    try:
        return Path(shutil.copyfile(log_of(path), log_of(_aside(path))))
    except OSError:  # no room: it is said all the same
        return log_of(path)


def _migrate(database: sqlite3.Connection, path: str) -> None:
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise NewerError(
            f"state must be of version {SCHEMA_VERSION}, got {version} in {path}; use the version that wrote it"
        )
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {number}")
        except sqlite3.OperationalError as error:
            database.execute("ROLLBACK")
            if "already exists" in str(error):
                raise sqlite3.DatabaseError("tables are there without a version") from error
            raise
        database.execute("COMMIT")


def hold(folder: Path) -> IO[str]:
    """Take the folder for this process.

    Raises:
        UsageError: if somebody has it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = (folder / LOCK).open("a+", encoding="ascii")
    except OSError as error:
        raise UsageError(f"`storage` must be a folder to write in, got {folder}: {error.strerror}") from error
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.close()
            raise UsageError(
                f"`storage` must be used by one daemon, got {folder}, which another has; stop that one, or name another"
            ) from error
    return handle


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")


def set_aside(path: Path) -> Path:
    """Move a damaged file, and what belongs to it, out of the way; return where it is now."""
    aside = _aside(path)
    for ending in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{aside}{ending}")
    return aside
