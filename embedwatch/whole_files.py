"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

__all__ = ["is_special", "write_folder_whole", "write_whole"]

ANYBODY = 0o666
"""Less what the umask takes: as any new file."""
SYSTEM_FOLDERS = (("dev",), ("proc",))
"""A file below these may be the shell's: /dev/stdout of `> file` must be written to, not replaced."""
MEMORY_FOLDER = ("dev", "shm")
"""Below it lie files as anywhere, though in memory."""


def write_whole(path: Path, content: bytes, *, mode: int = ANYBODY) -> None:
    """Write under another name, then rename it: a reader sees the old file or the new one, never a half.

    A device, a pipe or a socket, as /dev/null and /dev/stdout are, is written to: a rename would put a file in its
    place.

    Raises:
        OSError: if it cannot be written; what was there is left, and nothing beside it.
    """
    if is_special(path):
        with path.open("wb") as stream:
            stream.write(content)
        return
    growing = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        handle = os.open(growing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def is_special(path: Path) -> bool:
    """Return whether there is a device, a pipe, a socket, or what the system makes of an open file."""
    try:
        there = path.stat().st_mode
    except OSError:
        return False
    if not (stat.S_ISREG(there) or stat.S_ISDIR(there)):
        return True
    below = path.absolute().parts[1:]
    return below[:1] in SYSTEM_FOLDERS and below[:2] != MEMORY_FOLDER


def write_folder_whole(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder under another name, then rename it; one that is there goes aside until the new one is in place.

    Raises:
        OSError: if it cannot be written; what was there is left, and nothing beside it.
    """
    growing = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        growing.mkdir()
        for name, content in files.items():
            write_whole(growing / name, content)
        _put(growing, path)
    finally:
        shutil.rmtree(growing, ignore_errors=True)


def _put(growing: Path, path: Path) -> None:
    if not path.exists():
        growing.rename(path)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(aside)
    try:
        growing.rename(path)
    except OSError:
        aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)
