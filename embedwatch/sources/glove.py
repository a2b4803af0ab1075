"""GloVe: a word and its numbers on each line, without a header."""

from __future__ import annotations

from pathlib import Path

from embedwatch.core.errors import InputError
from embedwatch.sources._files import SNIFF_BYTES, head, reading, require_file
from embedwatch.sources._messages import check_shape, label_of
from embedwatch.sources._word_text import HEADER, MAX_HEADER, MAX_LINE, WordTextSource, agreement, sample_lines

__all__ = ["GloveSource"]

ENOUGH_LINES = 0.8
LEAST_DIMENSION = 2
"""Prose may well have lines that end in one number."""


class GloveSource(WordTextSource):
    """Words and their vectors in the text format of GloVe, read as float32.

    D is the number of numbers that most of the first lines end in. Words may hold blanks, so lines are parsed from the
    right. `names` gives the words; those that are not UTF-8 have their bad bytes replaced.

    References:
        Pennington, Socher & Manning 2014, "GloVe: Global Vectors for Word Representation".
    """

    name = "glove"
    title = "GloVe text"
    suffixes = (".txt", ".glove")

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether nearly all of the first lines end in equally many numbers, between blanks, with no header."""
        start = head(path, SNIFF_BYTES)
        if HEADER.match(start[:MAX_HEADER]):
            return False
        lines = sample_lines(start)
        dimension, share = agreement(lines)
        if dimension < LEAST_DIMENSION or share < ENOUGH_LINES or any(b"\t" in line for line in lines):
            return False
        return agreement(lines[:1])[0] == dimension  # a remark or a header of another kind is no word

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> GloveSource:
        """Read the first lines."""
        cls.refuse_options(select=select, labels=labels)
        label, size = label_of(path), require_file(path)
        lines = sample_lines(head(path, SNIFF_BYTES))
        if not lines and size > SNIFF_BYTES:  # the first line alone is longer
            with reading(path), path.open("rb") as file:
                lines = [line for line in (file.readline(MAX_LINE),) if line.endswith(b"\n")]
        dimension, _ = agreement(lines)
        if dimension < 1:
            raise InputError(
                f"{label} has no lines of a word and numbers between blanks at its beginning; is it another kind?"
            )
        check_shape(label, (0, dimension))
        return cls(path, rows=None, dimension=dimension, offset=0)
