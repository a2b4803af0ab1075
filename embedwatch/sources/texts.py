"""Texts of a file, for whoever wants a few of them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from embedwatch.sources._text_lines import TextLines

__all__ = ["first_texts"]


def first_texts(path: Path, number: int) -> tuple[str, ...]:
    """Return the first texts of a UTF-8 file with one a line; blank lines are none.

    Raises:
        InputError: if it cannot be read.
    """
    return tuple(line.text for line in islice(TextLines(path).lines(), number))
