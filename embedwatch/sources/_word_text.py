"""What the text formats of word vectors share: lines of a word and D numbers between blanks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import SNIFF_BYTES, rows_within
from embedwatch.sources._messages import check_shape, count_of, label_of, shown
from embedwatch.sources._numbers import is_number, numbers_at_end, parse_numbers
from embedwatch.sources._word_names import WordNames

__all__ = ["HEADER", "MAX_HEADER", "WordTextSource", "agreement", "counts", "looks_like_text", "sample_lines"]

HEADER = re.compile(rb"(-?\d{1,18}) +(-?\d{1,18}) *\r?\n")
"""The first line of the word2vec formats: rows and dimension."""
MAX_HEADER = 64
MAX_ROWS = 10**12
SAMPLE_LINES = 100
MAX_LINE = 32 << 20
"""A line of MAX_DIMENSION numbers fits; a file without line ends is not read whole."""
TEXT_BYTES = 64 << 20
"""A batch is closed when its lines reach this size."""
NUMBER_BYTES = 16
CONTROL_RATIO = 0.01
_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r")) + b"\x7f"
_BLANKS = b" \t\r\n"


def counts(label: str, header: re.Match[bytes]) -> tuple[int, int]:
    """Return rows and dimension of a word2vec header.

    Raises:
        InputError: if either is negative or absurd.
    """
    rows, dimension = int(header[1]), int(header[2])
    if not 0 <= rows <= MAX_ROWS or dimension < 0:
        raise InputError(
            f"{label} promises {rows:,} rows of {dimension:,} dimensions, counts must be from 0 to {MAX_ROWS:,}; "
            "copy it again"
        )
    return check_shape(label, (rows, dimension))


def looks_like_text(data: bytes) -> bool:
    """Return whether this reads as a word and numbers, and not as a word and binary floats."""
    line = data.split(b"\n", 1)[0]
    return not _has_control(data) and any(is_number(token) for token in line.split()[1:])


def _has_control(data: bytes) -> bool:
    """Return whether a share of the bytes that no text has are control characters; some crawled words have one."""
    return b"\0" in data or len(data) - len(data.translate(None, _NOT_TEXT)) > CONTROL_RATIO * len(data)


def sample_lines(data: bytes) -> list[bytes]:
    """Return the first whole lines that are not blank; nothing if the data is no text."""
    if _has_control(data):
        return []
    lines = data.split(b"\n")
    if len(data) >= SNIFF_BYTES:
        lines.pop()
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def agreement(lines: list[bytes]) -> tuple[int, float]:
    """Return the dimension that most lines agree on, and which share of them does.

    A line's own guess is the run of numbers at its end, less one where that is the whole line (a numeric word). The
    most frequent guess wins: it is not misled by a word that ends in a number, nor by a line that is too short.

    Example:
        >>> agreement([b"the 0.1 0.2", b"2000 0.3 0.4", b". . . 0.5 0.6"])
        (2, 1.0)
    """
    guesses = Counter(min(numbers_at_end(tokens), len(tokens) - 1) for tokens in (line.split() for line in lines))
    if not guesses:
        return 0, 0.0
    dimension, votes = max(guesses.items(), key=lambda item: (item[1], -item[0]))
    return dimension, votes / len(lines)


class WordTextSource(FileSource):
    """Lines of a word and D numbers. Parsed from the right, because words may hold blanks (". . ." in GloVe)."""

    def __init__(self, path: Path, *, rows: int | None, dimension: int, offset: int) -> None:
        super().__init__(path, rows=rows, dimension=dimension)
        self._width = dimension
        self._offset = offset
        self._names = WordNames(path, label_of(path), offset, self._read_words)

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read and parse lines, and note where each stretch began."""
        size = rows_within(size, NUMBER_BYTES * self._width)
        row = 0
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while lines := self._read_lines(file, size):
                yield Block(self._parse(lines, row))
                row += len(lines)
                self._names.note(row, file.tell())
        if self.rows is not None and row != self.rows:
            raise InputError(
                f"{self.label} ends after {count_of(row, 'word')}, its first line promises {self.rows:,}; "
                "copy it again, or correct that line"
            )

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the words of these rows."""
        return self._names.find(rows)

    def _read_lines(self, file: BinaryIO, count: int) -> list[bytes]:
        """Read lines that are not blank: as many, or TEXT_BYTES of them, or fewer at the end."""
        lines: list[bytes] = []
        total = 0
        while len(lines) < count and total < TEXT_BYTES and (line := file.readline(MAX_LINE)):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                raise InputError(
                    f"{self.label} has a line of more than {MAX_LINE:,} bytes; is it another kind of file?"
                )
            total += len(line)
            if line := line.rstrip(_BLANKS):
                lines.append(line)
        return lines

    def _read_words(self, file: BinaryIO, count: int) -> list[bytes]:
        words: list[bytes] = []
        while len(words) < count and (lines := self._read_lines(file, count - len(words))):
            words.extend(self._split(line)[0] for line in lines)
        return words

    def _split(self, line: bytes) -> tuple[bytes, bytes]:
        """Cut a line into its word and its numbers, which are for the parser to judge."""
        if line.count(b" ") == self._width:  # the usual case, and the fast one
            word, _, tail = line.partition(b" ")
        else:
            word = line.rsplit(None, self._width)[0]
            tail = line[len(word) + 1 :]
        return word, tail

    def _parse(self, lines: list[bytes], row: int) -> Tensor:
        """Return (N, D) float32."""
        pairs = [self._split(line) for line in lines]
        # A word that ends in a number is a line with a number too many, and must not pass for a word with a blank.
        odd = any(b" " in word and is_number(word.rsplit(None, 1)[-1]) for word, _ in pairs)
        values = None if odd else parse_numbers([tail for _, tail in pairs], self._width)
        if values is None:
            checked = [
                self._parse_line(pair, line, row + i) for i, (pair, line) in enumerate(zip(pairs, lines, strict=True))
            ]
            values = torch.tensor(checked, dtype=torch.float32)
        return values  # (N, D)

    def _parse_line(self, pair: tuple[bytes, bytes], line: bytes, row: int) -> list[float]:
        word, numbers = pair[0].split(), pair[1].split()
        surplus = len(word) > 1 and is_number(word[-1])
        if len(numbers) == self._width and all(map(is_number, numbers)) and not surplus:
            return [float(number) for number in numbers]
        tokens = line.split()
        found = numbers_at_end(tokens)
        where = f"{self.label} line {self._line_number(row):,}"
        if found < self._width < len(tokens):
            raise InputError(
                f"{where} has {shown(_text(tokens[-found - 1]))}, a number must stand there; correct that line"
            )
        raise InputError(
            f"{where} has {count_of(min(found, len(tokens) - 1), 'number')} after its word, the file {self._width:,}; "
            "correct that line, or copy the file again"
        )

    def _line_number(self, row: int) -> int:
        with self.path.open("rb") as file:
            number = len(file.read(self._offset).splitlines())
            while row >= 0 and (line := file.readline(MAX_LINE)):
                number += 1
                row -= bool(line.strip())
        return number


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")
