"""Text files, one text or one label a line, read as a stream: a first pass counts and checks, later ones read."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from embedwatch.core.errors import InputError, UsageError
from embedwatch.sources._files import reading, require_file
from embedwatch.sources._messages import count_of, label_of

__all__ = ["Line", "TextLines"]

LONGEST = 16 << 20
"""Bytes of one line. A file with a longer one is not a text file with one text a line."""
STRIDE = 1024
"""The place of every so many-th row is kept, so that any row is found again by reading at most this many lines."""
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Line:
    """A line of a file: its number, counted from 1, and its text without the end of the line."""

    number: int
    text: str


class TextLines:
    r"""A UTF-8 file with one text a line. Rows are its lines, or those that are not blank.

    Args:
        path: the file; a byte order mark is skipped. A line ends with `\n` or `\r\n`.
        skip_blank: whether blank lines are no rows.

    Attributes:
        rows: number of rows.
        blank: number of blank lines.

    Raises:
        InputError: if there is no such file, if it is empty or not UTF-8; the message names the line.
    """

    def __init__(self, path: str | Path, *, skip_blank: bool = True) -> None:
        self.path = Path(path)
        self.label = label_of(self.path)
        self.rows = 0
        self.blank = 0
        self._skip_blank = skip_blank
        self._marks: list[tuple[int, int]] = []  # place in the file and number of every STRIDE-th row
        self._digest = hashlib.blake2b(digest_size=8)
        require_file(self.path)
        for place, line in self._walk(0, 1, digest=self._digest):
            if not line.text.strip():
                self.blank += 1
                if skip_blank:
                    continue
            if self.rows % STRIDE == 0:
                self._marks.append((place, line.number))
            self.rows += 1
        if self.rows == 0:
            raise InputError(
                f"{self.label} holds {count_of(self.blank, 'blank line')} and no text; write one text a line"
            )

    def __len__(self) -> int:
        return self.rows

    def fingerprint(self) -> str:
        """Return 16 hex digits of the BLAKE2b hash of the file's bytes."""
        return self._digest.hexdigest()

    def lines(self, start: int = 0) -> Iterator[Line]:
        """Yield the rows from `start` on, each with the number of its line."""
        if start >= self.rows:
            return
        place, number = self._marks[start // STRIDE]
        passed = start % STRIDE
        for _, line in self._walk(place, number):
            if self._skip_blank and not line.text.strip():
                continue
            if passed:
                passed -= 1
                continue
            yield line

    def find(self, rows: Sequence[int]) -> list[Line]:
        """Return some rows, in the order asked for."""
        found: dict[int, Line] = {}
        lines, at = self.lines(), 0
        for row in sorted(set(rows)):
            if not 0 <= row < self.rows:
                raise UsageError(
                    f"`rows` must be below {self.rows:,}, the rows of {self.label}, got {row:,}; count from 0"
                )
            if row - at > STRIDE:  # nearer from its mark than from here
                lines, at = self.lines(row), row
            found[row] = next(islice(lines, row - at, None))
            at = row + 1
        return [found[row] for row in rows]

    def _walk(self, place: int, number: int, *, digest: hashlib.blake2b | None = None) -> Iterator[tuple[int, Line]]:
        """Yield every line from a place in the file on, with its place."""
        with reading(self.path), self.path.open("rb") as file:
            file.seek(place)
            while raw := file.readline(LONGEST):
                if digest is not None:
                    digest.update(raw)
                yield place, Line(number, self._decode(raw, number))
                place += len(raw)
                number += 1

    def _decode(self, raw: bytes, number: int) -> str:
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            raise InputError(
                f"{self.label} has a line of over {LONGEST >> 20} MiB, line {number:,}; write one text a line"
            )
        if number == 1 and raw.startswith(UTF_16):
            raise InputError(f"{self.label} is UTF-16, texts must be UTF-8; convert it with `iconv -f UTF-16 -t UTF-8`")
        if b"\0" in raw:
            raise InputError(f"{self.label} has a zero byte in line {number:,}, so it is no text; name a text file")
        try:
            return raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.label} has byte 0x{raw[error.start]:02X} in line {number:,}, which is not UTF-8; "
                "convert it with `iconv -f LATIN1 -t UTF-8`, or from whatever it is in"
            ) from error
