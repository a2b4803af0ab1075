"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a text under another name, then rename it: a reader sees the old file or the new one, never a half.

    Raises:
        OSError: if it cannot be written; what was there is left, and nothing beside it.
    """
    growing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        growing.write_text(text, encoding="utf-8")
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)
