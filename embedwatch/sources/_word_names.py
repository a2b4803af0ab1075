"""Names of rows in formats where each row begins with its word: read again when asked, never all kept."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from embedwatch.core.errors import UsageError
from embedwatch.sources._files import reading
from embedwatch.sources._messages import count_of

__all__ = ["WordNames"]

STRIDE = 1024
"""Words are read and kept in blocks of this many rows."""
KEPT_BLOCKS = 64


class WordNames:
    """Finds the words of rows.

    Positions of rows are noted while the vectors are read, one for each STRIDE rows, so that a word is found by reading
    one block. The last KEPT_BLOCKS blocks of words are kept.

    Args:
        path: the file.
        label: what messages call it.
        offset: position of the first row.
        read: reads up to so many rows from the file's position, leaves it at the next row, and returns their words.
    """

    def __init__(self, path: Path, label: str, offset: int, read: Callable[[BinaryIO, int], list[bytes]]) -> None:
        self._path = path
        self._label = label
        self._read = read
        self._rows = [0]
        self._offsets = [offset]
        self._kept: OrderedDict[int, list[bytes]] = OrderedDict()

    def note(self, row: int, offset: int) -> None:
        """Remember where a row begins, if it is far enough behind the last one known. Rows come in order."""
        if row >= self._rows[-1] + STRIDE:
            self._rows.append(row)
            self._offsets.append(offset)

    def find(self, rows: Sequence[int]) -> list[str]:
        """Return the words of these rows; bytes that are not UTF-8 are replaced."""
        found: dict[int, str] = {}
        with reading(self._path), self._path.open("rb") as file:
            for block, members in groupby(sorted(set(rows)), key=lambda row: row // STRIDE):
                words = self._block(file, block) if block >= 0 else []
                for row in members:
                    if not 0 <= row - block * STRIDE < len(words):
                        raise UsageError(f"`rows` must be row numbers of {self._label}, got {row}; it ends before")
                    found[row] = words[row - block * STRIDE].decode("utf-8", "replace")
        return [found[row] for row in rows]

    def _block(self, file: BinaryIO, block: int) -> list[bytes]:
        if block in self._kept:
            self._kept.move_to_end(block)
            return self._kept[block]
        start = block * STRIDE
        known = bisect_right(self._rows, start) - 1
        row = self._rows[known]
        file.seek(self._offsets[known])
        while row < start:
            passed = len(self._read(file, min(STRIDE, start - row)))
            if not passed:
                return []
            row += passed
            self.note(row, file.tell())
        words = self._read(file, STRIDE)
        self._kept[block] = words
        if len(self._kept) > KEPT_BLOCKS:
            self._kept.popitem(last=False)
        return words

    def __repr__(self) -> str:
        return f"WordNames({self._label!r}, {count_of(len(self._rows), 'position')})"
