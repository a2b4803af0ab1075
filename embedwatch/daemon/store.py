"""Store: what the daemon must not forget, in one SQLite file. What was acknowledged is in it until it is in a window.

```
storage/
  lock           held by the one daemon that writes
  state.sqlite   inbox        accepted parcels that are in no saved window yet
                 windows      open windows, one a Space
                 snapshots    the last ones of each Space
                 verdicts     status of each check, since when, and by which reference
                 statuses     gravest status of the last windows of each Space
                 turns        verdicts that became grave, or ceased to be
                 deliveries   (sender, number) of what was accepted: the same again is known
```

A parcel leaves the inbox in the transaction that saves the window or the Snapshot that it went into: at whatever moment
the process ends, each acknowledged row is in one place.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from embedwatch.core.errors import UsageError
from embedwatch.core.snapshot import Space
from embedwatch.daemon.chronicle import TURNS, WINDOWS, Chapter
from embedwatch.daemon.state_files import MEMORY, SCHEMA_VERSION, NewerError, connect, hold, set_aside
from embedwatch.large_bytes import PIECE, pieces

__all__ = ["SCHEMA_VERSION", "Delivery", "JsonTexts", "Kept", "Saved", "Store", "VerdictState"]

log = logging.getLogger(__name__)

FILE = "state.sqlite"
REMEMBERED = 200
"""Snapshots of a Space that are kept."""
NEWEST = (("snapshots", "snapshot", REMEMBERED), ("statuses", "status", WINDOWS), ("turns", "turn", TURNS))
"""Tables of which the newest rows of a Space are kept: the column that holds JSON, and how many."""
DELIVERIES = 100_000
"""So many (sender, number) are kept, the newest: a sender repeats what it sent lately."""
PRUNED_EVERY = 1_000
"""Deliveries after which the oldest are dropped."""


@dataclass(frozen=True)
class Delivery:
    """An accepted parcel: whose Space, from whom, and its bytes. An empty sender is nobody, who never repeats."""

    space: Space
    sender: str
    number: int
    data: bytes


@dataclass(frozen=True)
class VerdictState:
    """A verdict as JSON, since when the check has had its status, and the reference that it rests on, if on any."""

    name: str
    since: float
    verdict: dict[str, Any]
    reference: str = ""


@dataclass(frozen=True)
class Saved:
    """What a Space has come to since it was saved last.

    Args:
        space: whose.
        window: the open window; `None` where it holds nothing.
        entries: numbers of the parcels that are in it, or in one of the Snapshots.
        snapshots: of the windows closed since, as JSON.
        verdicts: of the last of them.
        chapter: statuses and turns of the windows closed since.
    """

    space: Space
    window: bytes | None
    entries: Sequence[int] = ()
    snapshots: Sequence[dict[str, Any]] = ()
    verdicts: Sequence[VerdictState] = ()
    chapter: Chapter = field(default_factory=Chapter)


class JsonTexts(Sequence[dict[str, Any]]):
    """JSON objects that stay text until they are asked for: as text they take a fifth.

    Args:
        texts: each of one object.

    Example:
        >>> texts = JsonTexts(['{"a": 1}', '{"a": 2}'])
        >>> texts[-1], len(texts[:1])
        ({'a': 2}, 1)
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)

    def add(self, text: str) -> None:
        """Add one at the end.

        Raises:
            ValueError: if it is no JSON.
        """
        json.loads(text)
        self._texts.append(text)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> JsonTexts: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | JsonTexts:
        if isinstance(place, slice):
            return JsonTexts(self._texts[place])
        found: dict[str, Any] = json.loads(self._texts[place])
        return found


@dataclass
class Kept:
    """What was found of a Space."""

    window: bytes | None = None
    entries: list[tuple[int, bytes]] = field(default_factory=list)
    snapshots: JsonTexts = field(default_factory=JsonTexts)
    verdicts: list[VerdictState] = field(default_factory=list)
    statuses: list[list[Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)

    @property
    def chapter(self) -> Chapter:
        """Statuses and turns."""
        return Chapter(self.statuses, self.turns)


@dataclass(eq=False)
class _Ticket:
    """A delivery that waits for the next transaction; then its number in the inbox, or what went wrong."""

    delivery: Delivery
    number: int | None = None
    error: Exception | None = None
    done: bool = False


class Store:
    """One SQLite file in WAL mode with one writer. Safe to use from several threads.

    Deliveries that come at the same time share one transaction and one sync of the disk. A damaged file is moved aside.

    Args:
        folder: where it lies; `None` keeps everything in memory, for as long as the process lives.

    Raises:
        UsageError: if another daemon has the folder, a later version wrote the file, or nothing can be written.

    Example:
        >>> store = Store(None)
        >>> store.add(Delivery(Space("m", "p"), "w0", 1, b"rows"))
        1
        >>> store.add(Delivery(Space("m", "p"), "w0", 1, b"rows")) is None
        True
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.damaged: Path | None = None
        """Where a damaged file was moved, or a damaged log was copied."""
        self.saved_at: float | None = None
        """When something was saved last, in seconds since the epoch."""
        self._lock = threading.Lock()
        self._queue = threading.Lock()
        self._tickets: list[_Ticket] = []
        self._since_pruned = 0
        self._held = None if folder is None else hold(folder)
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        if self.folder is None:
            return connect(MEMORY).database
        path = self.folder / FILE
        try:
            database, self.damaged = connect(str(path))
        except NewerError:
            self._let_go()
            raise
        except sqlite3.OperationalError as error:  # no room, no right: nothing is wrong with the file
            self._let_go()
            raise UsageError(f"`storage` must be a folder to write in, got {self.folder}: {error}") from error
        except sqlite3.DatabaseError as error:
            return self._afresh(error)
        if self.damaged is not None:
            log.error("embedwatch: the log of state %s is damaged; what it hides is in %s", path, self.damaged)
        return database

    def _afresh(self, error: Exception) -> sqlite3.Connection:
        """Move the damaged file aside and begin an empty one."""
        path = (self.folder or Path()) / FILE
        self.damaged = set_aside(path)
        log.error("embedwatch: state %s is damaged (%s); moved to %s, begins empty", path, error, self.damaged)
        return connect(str(path)).database

    def add(self, delivery: Delivery) -> int | None:
        """Store a delivery, on the disk when this returns; return its number, or `None` where it is known already.

        Raises:
            sqlite3.Error: if it cannot be stored.
        """
        ticket = _Ticket(delivery)
        with self._queue:
            self._tickets.append(ticket)
        with self._lock:  # whoever comes first writes for all who wait
            if not ticket.done:
                self._write_tickets()
        if ticket.error is not None:
            raise ticket.error
        return ticket.number

    def _write_tickets(self) -> None:
        with self._queue:
            tickets, self._tickets = self._tickets, []
        try:
            with self._transaction():
                for ticket in tickets:
                    ticket.number = self._add(ticket.delivery)
        except Exception as error:  # noqa: BLE001 - each caller is told
            for ticket in tickets:
                ticket.error = error
        for ticket in tickets:
            ticket.done = True

    def _add(self, delivery: Delivery) -> int | None:
        if delivery.sender:
            self._since_pruned += 1
            known = "INSERT OR IGNORE INTO deliveries (sender, number) VALUES (?, ?)"
            if not self._database.execute(known, (delivery.sender, delivery.number)).rowcount:
                return None
        key = _key(delivery.space)
        return self._insert("INSERT INTO inbox (space, parcel) VALUES (?, {})", "inbox", key, delivery.data)

    def _insert(self, statement: str, table: str, key: str, parcel: bytes) -> int | None:
        """Insert a parcel, a large one in pieces: SQLite copies what it is given while no other thread runs."""
        if len(parcel) <= PIECE or not hasattr(self._database, "blobopen"):  # which came with Python 3.11
            return self._database.execute(statement.format("?"), (key, parcel)).lastrowid
        added = self._database.execute(statement.format("zeroblob(?)"), (key, len(parcel))).lastrowid
        with self._database.blobopen(table, "parcel", added) as blob:
            for piece in pieces(parcel):
                blob.write(piece)
        return added

    def knows(self, sender: str, number: int) -> bool:
        """Return whether this delivery was accepted before."""
        with self._lock:
            query = "SELECT 1 FROM deliveries WHERE sender = ? AND number = ?"
            return self._database.execute(query, (sender, number)).fetchone() is not None

    def save(self, spaces: Iterable[Saved]) -> None:
        """Save windows, Snapshots and verdicts of some Spaces, and empty the inbox of what they hold: all or nothing.

        Raises:
            sqlite3.Error: if it cannot be stored; then nothing has changed.
        """
        with self._lock, self._transaction():
            for saved in spaces:
                self._save(saved)
            if self._since_pruned >= PRUNED_EVERY:
                oldest = "DELETE FROM deliveries WHERE id <= (SELECT max(id) FROM deliveries) - ?"
                self._database.execute(oldest, (DELIVERIES,))
                self._since_pruned = 0
        self.saved_at = time.time()

    def _save(self, saved: Saved) -> None:
        database, key = self._database, _key(saved.space)
        database.executemany("DELETE FROM inbox WHERE id = ?", [(number,) for number in saved.entries])
        if saved.window is None:
            database.execute("DELETE FROM windows WHERE space = ?", (key,))
        else:
            self._insert("INSERT OR REPLACE INTO windows VALUES (?, {})", "windows", key, saved.window)
        for (table, column, most), values in zip(
            NEWEST, (saved.snapshots, saved.chapter.statuses, saved.chapter.turns), strict=True
        ):
            self._append(table, column, key, values, most)
        states = [(key, each.name, each.since, json.dumps(each.verdict), each.reference) for each in saved.verdicts]
        database.executemany("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)", states)

    def _append(self, table: str, column: str, key: str, values: Sequence[Any], most: int) -> None:
        """Add rows of JSON to a table, and keep the newest of the Space."""
        if values:
            rows = [(key, json.dumps(value)) for value in values]
            self._database.executemany(f"INSERT INTO {table} (space, {column}) VALUES (?, ?)", rows)  # noqa: S608 -- constants
            oldest = f"SELECT id FROM {table} WHERE space = ? ORDER BY id DESC LIMIT 1 OFFSET ?"  # noqa: S608
            self._database.execute(f"DELETE FROM {table} WHERE space = ? AND id <= ({oldest})", (key, key, most))  # noqa: S608

    def forget(self, spaces: Iterable[Space]) -> None:
        """Drop what is known of some Spaces.

        Raises:
            sqlite3.Error: if nothing can be written.
        """
        keys = [(_key(space),) for space in spaces]
        with self._lock, self._transaction():
            for table in ("windows", "verdicts", *(table for table, _, _ in NEWEST)):
                self._database.executemany(f"DELETE FROM {table} WHERE space = ?", keys)  # noqa: S608 -- a constant

    def restore(self) -> dict[Space, Kept]:
        """Return all that is there, Space by Space, the oldest first; nothing where it turns out to be damaged."""
        with self._lock:
            try:
                return self._restored()
            except (sqlite3.DatabaseError, AttributeError, TypeError, ValueError) as error:
                if self.folder is None:
                    raise
                self._database.close()
                self._database = self._afresh(error)
        return {}

    def _restored(self) -> dict[Space, Kept]:
        found: dict[str, Kept] = {}
        for key, data in self._rows("SELECT space, parcel FROM windows ORDER BY space"):
            found.setdefault(key, Kept()).window = data
        for number, key, data in self._rows("SELECT id, space, parcel FROM inbox ORDER BY id"):
            found.setdefault(key, Kept()).entries.append((number, data))
        for key, text in self._rows("SELECT space, snapshot FROM snapshots ORDER BY id"):
            found.setdefault(key, Kept()).snapshots.add(text)
        for key, text in self._rows("SELECT space, status FROM statuses ORDER BY id"):
            found.setdefault(key, Kept()).statuses.append(json.loads(text))
        for key, text in self._rows("SELECT space, turn FROM turns ORDER BY id"):
            found.setdefault(key, Kept()).turns.append(json.loads(text))
        verdicts = "SELECT space, name, since, verdict, reference FROM verdicts ORDER BY name"
        for key, name, since, text, mark in self._rows(verdicts):
            found.setdefault(key, Kept()).verdicts.append(VerdictState(name, since, json.loads(text), mark))
        return {Space(**json.loads(key)): kept for key, kept in found.items()}

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        return iter(self._database.execute(query))

    @property
    def size(self) -> int:
        """Bytes on the disk; 0 where nothing is kept there."""
        if self.folder is None:
            return 0
        return sum(path.stat().st_size for path in self.folder.glob(FILE + "*") if path.is_file())

    def close(self) -> None:
        """Let the file and the folder go. Calling it again does nothing."""
        with self._lock:
            self._database.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # it may have ended by itself
                self._database.execute("ROLLBACK")
            raise


def _key(space: Space) -> str:
    return json.dumps(space.labels(), sort_keys=True)
