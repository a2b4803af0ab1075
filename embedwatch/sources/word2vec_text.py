"""word2vec text: a line `rows dimension`, then a word and its numbers on each line. Also fastText's `.vec`."""

from __future__ import annotations

from pathlib import Path

from embedwatch.core.errors import InputError
from embedwatch.sources._files import SNIFF_BYTES, has_suffix, head, reading, require_file
from embedwatch.sources._messages import label_of, shown
from embedwatch.sources._word_text import HEADER, MAX_HEADER, WordTextSource, agreement, counts, sample_lines

__all__ = ["Word2vecTextSource"]

ENOUGH_LINES = 0.8


class Word2vecTextSource(WordTextSource):
    """Words and their vectors in the text format of word2vec.c, gensim and fastText, read as float32.

    `names` gives the words; those that are not UTF-8 have their bad bytes replaced. The rows must be as many as the
    first line promises.

    References:
        Mikolov et al. 2013, "Distributed Representations of Words and Phrases and their Compositionality"; word2vec.c.
    """

    name = "word2vec_text"
    title = "word2vec text"
    suffixes = (".vec", ".txt")

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether it begins with a line of two counts, and goes on with lines that end in as many numbers."""
        start = head(path, SNIFF_BYTES)
        header = HEADER.match(start[:MAX_HEADER])
        if header is None:
            return False
        if header.end() == len(start):  # no rows at all: only the file's name can tell
            return has_suffix(path, cls.suffixes)
        dimension, share = agreement(sample_lines(start)[1:])
        # Lines that do not keep the header's promise are ours to complain of, except where they may be a plain matrix.
        return share >= ENOUGH_LINES and (dimension == int(header[2]) or dimension > 1)

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> Word2vecTextSource:
        """Read the first line."""
        cls.refuse_options(select=select, labels=labels)
        label, size = label_of(path), require_file(path)
        with reading(path), path.open("rb") as file:
            start = file.read(MAX_HEADER)
        header = HEADER.match(start)
        if header is None:
            raise InputError(
                f"{label} begins with {shown(start[:16])}, word2vec text must with a line of counts such as "
                "`400000 50`; use `--as glove` if there is none"
            )
        rows, dimension = counts(label, header)
        least = header.end() + rows * (1 + 2 * dimension) - 1  # each number is a blank and a digit
        if size < least:
            raise InputError(
                f"{label} ends after {size:,} bytes, its first line promises at least {least:,} "
                f"({rows} words × {dimension} numbers); copy it again"
            )
        return cls(path, rows=rows, dimension=dimension, offset=header.end())
