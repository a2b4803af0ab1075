"""The first bytes of an index file, read without FAISS."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["HEADER_BYTES", "IndexHeader", "header_of"]

HEADER_BYTES = 37
_LAYOUT = struct.Struct("<4siqqqBi")
FILLER = 1 << 20
"""What FAISS writes twice where it once had other fields: no text and no other format has it there."""
MOST_DIMENSIONS = 1 << 20
MOST_ROWS = 1 << 48
BINARY = b"IB"
"""How the kinds for bits begin."""


class IndexHeader(NamedTuple):
    """Kind, dimension and number of vectors as the outermost layer tells them.

    Args:
        magic: four letters of the kind.
        dimension: D.
        rows: N.
        binary: whether it holds bits; nothing else is known then.
    """

    magic: str
    dimension: int
    rows: int
    binary: bool = False


def header_of(start: bytes) -> IndexHeader | None:
    """Return what the first bytes of an index say; `None` where they are none.

    Example:
        >>> start = b"IxF2" + struct.pack("<iqqqBi", 384, 1000, 1 << 20, 1 << 20, 1, 1)
        >>> header_of(start)
        IndexHeader(magic='IxF2', dimension=384, rows=1000, binary=False)
        >>> header_of(b"Ix marks the spot, and some more text than that") is None
        True
    """
    if len(start) >= HEADER_BYTES and start.startswith(BINARY) and start[4:8] != b"\0\0\0\0":
        dimension, code = struct.unpack("<ii", start[4:12])
        if 0 < dimension <= MOST_DIMENSIONS and code == dimension // 8:
            return IndexHeader(start[:4].decode("latin-1"), dimension, 0, binary=True)
    if len(start) < HEADER_BYTES or start[:1] != b"I":
        return None
    magic, dimension, rows, first, second, _, _ = _LAYOUT.unpack(start[:HEADER_BYTES])
    if first != FILLER or second != FILLER or not magic.isalnum():
        return None
    return IndexHeader(magic.decode("latin-1"), dimension, rows)
