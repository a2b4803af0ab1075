"""word2vec binary: a line `rows dimension`, then for each row its word, a blank and D little-endian float32."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from embedwatch.core.errors import InputError
from embedwatch.sources._file_source import Block, FileSource
from embedwatch.sources._files import has_suffix, head, reading, require_file, rows_within
from embedwatch.sources._messages import count_of, label_of, shown
from embedwatch.sources._stored import native
from embedwatch.sources._word_names import WordNames
from embedwatch.sources._word_text import HEADER, MAX_HEADER, counts, looks_like_text

__all__ = ["Word2vecBinarySource"]

MAX_WORD = 4096
"""word2vec.c stops at 2,000 bytes; more without a blank is not this format."""
WORD_GUESS = 16
"""Bytes of a word and its blank, for the size of reads; a wrong guess costs another read."""
FLOAT_BYTES = 4


class Word2vecBinarySource(FileSource):
    """Words and their vectors in the binary format of word2vec.c, as gensim also writes it.

    float32; a newline behind each vector is optional. `names` gives the words; those that are not UTF-8 have their bad
    bytes replaced. The counts in the header are compared with the size of the file, and with the rows that were found.

    References:
        Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality"; word2vec.c.
    """

    name = "word2vec_binary"
    title = "word2vec binary"
    suffixes = (".bin",)

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it begins with a line of two counts and does not go on as text."""
        start = head(path)
        header = HEADER.match(start[:MAX_HEADER])
        if header is None:
            return False
        rest = start[header.end() :]
        return not looks_like_text(rest) if rest else has_suffix(path, cls.suffixes)

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Word2vecBinarySource:
        """Read the header line."""
        cls.refuse_options(select=select, labels=labels)
        return cls(path)

    def __init__(self, path: Path) -> None:
        label, size = label_of(path), require_file(path)
        with reading(path), path.open("rb") as file:
            start = file.read(MAX_HEADER)
        header = HEADER.match(start)
        if header is None:
            raise InputError(
                f"{label} begins with {shown(start[:16])}, word2vec binary must with a line of counts "
                "such as `3000000 300`; name its kind with `--as KIND`"
            )
        rows, dimension = counts(label, header)
        least = header.end() + rows * (1 + FLOAT_BYTES * dimension)
        if size < least:
            raise InputError(
                f"{label} ends after {size:,} bytes, its header promises at least {least:,} "
                f"({rows} words × {dimension} float32); copy it again"
            )
        self.offset, self.width = header.end(), FLOAT_BYTES * dimension
        super().__init__(path, rows=rows, dimension=dimension)
        self._names = WordNames(path, label, self.offset, lambda file, count: self._read(file, count)[0])

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """Read words and vectors, and note where each stretch began."""
        rows, dimension = self.rows or 0, self.width // FLOAT_BYTES
        size = rows_within(size, self.width)
        with self.path.open("rb") as file:
            file.seek(self.offset)
            row = 0
            while row < rows:
                words, vectors = self._read(file, min(size, rows - row))
                if not words:
                    raise InputError(
                        f"{self.label} ends after {count_of(row, 'word')}, its header promises {rows:,}; copy it again"
                    )
                block = torch.frombuffer(vectors, dtype=torch.float32).view(len(words), dimension)
                native(block, big_endian=False)
                yield Block(block)
                row += len(words)
                self._names.note(row, file.tell())
            if file.read(MAX_WORD).strip():
                raise InputError(
                    f"{self.label} goes on after the {count_of(rows, 'word')} that its header promises; "
                    "correct its first line, or copy it again"
                )

    def _read(self, file: BinaryIO, count: int) -> tuple[list[bytes], bytearray]:
        """Read up to `count` rows from here, leave the file at the next one, and return words and vectors."""
        count = rows_within(count, self.width)
        start, position = file.tell(), 0
        buffer = file.read(count * (self.width + WORD_GUESS))
        words: list[bytes] = []
        vectors: list[bytes] = []
        while len(words) < count:
            begin = position
            while buffer[begin : begin + 1] == b"\n":  # the optional end of the row before
                begin += 1
            blank = buffer.find(b" ", begin, begin + MAX_WORD)
            position_after = blank + 1 + self.width
            if blank >= 0 and position_after <= len(buffer):
                words.append(buffer[begin:blank])
                if b"\n" in words[-1]:
                    raise self._lost(words)
                vectors.append(buffer[blank + 1 : position_after])
                position = position_after
                continue
            if blank < 0 and begin + MAX_WORD <= len(buffer):
                raise self._lost([*words, buffer[begin : begin + MAX_WORD]])
            more = file.read((count - len(words)) * (self.width + WORD_GUESS) + MAX_WORD)
            if not more:
                break
            start, buffer, position = start + position, buffer[position:] + more, 0
        file.seek(start + position)
        return words, bytearray().join(vectors)

    def _lost(self, words: list[bytes]) -> InputError:
        """Return the error for a place where a word should stand and none does."""
        before = f"after the word {shown(words[-2].decode('utf-8', 'replace'))}" if len(words) > 1 else "as a word"
        return InputError(
            f"{self.label} has {shown(words[-1])} {before}, words must be short and hold no blank or line end; "
            "is it damaged, or float16 or float64 instead of float32?"
        )

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the words of these rows."""
        return self._names.find(rows)
