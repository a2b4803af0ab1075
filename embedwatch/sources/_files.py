"""What every file source needs: a look at the first bytes, clear refusals of what is no file, a fingerprint."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from embedwatch.core.errors import InputError
from embedwatch.sources._messages import clean, first_line, label_of

__all__ = ["SNIFF_BYTES", "fill", "fingerprint", "has_suffix", "head", "reading", "require_file", "rows_within"]

SNIFF_BYTES = 1 << 16
"""How much of a file `accepts` and header readers may look at."""
BATCH_BYTES = 256 << 20
"""No batch is made larger than this, whatever `size` asks, unless a single row is."""
FINGERPRINT_BYTES = 1 << 20


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into an `InputError`."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{clean(os.fspath(path))} does not exist; check the path") from error
    except PermissionError as error:
        raise InputError(f"{label_of(path)} may not be read by this user; check its permissions") from error
    except OSError as error:
        why = error.strerror or first_line(error)
        raise InputError(f"{label_of(path)} cannot be read: {clean(why)}; check the disk and the path") from error


def require_file(path: Path) -> int:
    """Return the size in bytes of a regular file that holds anything.

    Raises:
        InputError: if it is missing, empty, a folder, or a pipe, device or socket (reading those could wait for ever).
    """
    try:
        with reading(path):
            status = path.stat()
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{label_of(path)} holds a zero byte, which no path may; check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{label_of(path)} is a folder, this kind is read from a file; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{label_of(path)} is a pipe, device or socket; write the vectors to a regular file first")
    if status.st_size == 0:
        raise InputError(f"{label_of(path)} is empty (0 bytes); write it again")
    return status.st_size


def head(path: Path, count: int = SNIFF_BYTES) -> bytes:
    """Return the first bytes of a regular file, nothing where there are none to be had. Never raises."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        with path.open("rb", buffering=0) as file:
            return file.read(count) or b""
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return b""


def has_suffix(path: Path, suffixes: tuple[str, ...]) -> bool:
    """Return whether a regular file's name ends like this, whatever its case."""
    try:
        return path.name.lower().endswith(suffixes) and path.is_file()
    except (OSError, ValueError):
        return False


def fill(file: IO[bytes], view: memoryview) -> int:
    """Read until the view is full or the file ends; return the number of bytes read."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])  # type: ignore[attr-defined]  # typeshed gives IO no readinto
        if not count:
            break
        done += count
    return done


def rows_within(size: int, row_bytes: int, budget: int = BATCH_BYTES) -> int:
    """Return how many rows one read may take: at most `size`, fewer where they would not fit in the budget."""
    return max(1, min(size, budget // max(row_bytes, 1)))


def fingerprint(path: Path, *choices: str | None) -> str:
    """Return 16 hex digits that change with the content.

    BLAKE2b over the size of the file, its first and its last MiB, and what was chosen from it (`select`, `labels`). A
    change in the middle of a larger file that keeps its size is not seen: that would cost a full read.
    """
    digest = hashlib.blake2b(digest_size=8)
    with reading(path), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(f"{size} {choices!r}".encode("utf-8", "replace"))
        file.seek(0)
        digest.update(file.read(FINGERPRINT_BYTES))
        file.seek(max(size - FINGERPRINT_BYTES, 0))
        digest.update(file.read(FINGERPRINT_BYTES))
    return digest.hexdigest()
