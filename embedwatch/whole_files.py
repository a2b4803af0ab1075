"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

__all__ = ["write_whole"]

ANYBODY = 0o666
"""Less what the umask takes: as any new file."""


def write_whole(path: Path, content: bytes, *, mode: int = ANYBODY) -> None:
    """Write under another name, then rename it: a reader sees the old file or the new one, never a half.

    Raises:
        OSError: if it cannot be written; what was there is left, and nothing beside it.
    """
    growing = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        handle = os.open(growing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)
