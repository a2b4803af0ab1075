"""Inquiry: a model, and what is asked about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.loading.examinable import Examinable

__all__ = ["MOST_TOKENS", "Inquiry", "check_length"]

MOST_TOKENS = 1_000_000_000
"""The longest text that is asked about."""


def check_length(length: int | None) -> None:
    """Refuse a number of tokens that no text has.

    Raises:
        UsageError: in one line.

    Example:
        >>> check_length(0)
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.UsageError: `length` must be from 1 to 1,000,000,000 tokens, got 0; give those of ...
    """
    number = isinstance(length, int) and not isinstance(length, bool)
    if length is not None and not (number and 1 <= length <= MOST_TOKENS):
        shown = f"{length:,}" if number else repr(length)
        raise UsageError(
            f"`length` must be from 1 to {MOST_TOKENS:,} tokens, got {shown}; give those of the longest text"
        )


@dataclass(frozen=True)
class Inquiry:
    """A model, and what is asked about it: the argument of every diagnostic of a model.

    Args:
        subject: the model.
        texts: ordinary texts for it, a bounded number.
        prompts: beginnings that it is to go on from.
        corpus: a file of texts, whose tokens are counted.
        length: number of tokens that it is to be used with; `None` for what it was trained with.
        words: groups of words, where others are wanted than those that come with the package.
        deep: whether the model may be run where nothing else asks for it.
        seed: of whatever is drawn.
    """

    subject: Examinable
    texts: Sequence[str] = ()
    prompts: Sequence[str] = ()
    corpus: Path | None = None
    length: int | None = None
    words: Any = None
    deep: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a length that no text has, and texts that are none."""
        check_length(self.length)
        for name in ("texts", "prompts"):
            given = getattr(self, name)
            odd = given if isinstance(given, str) else next((each for each in given if not isinstance(each, str)), None)
            if odd is not None:
                raise UsageError(f"`{name}` must be a list of texts, got {odd!r:.40}; put each in a list")

    @property
    def runs(self) -> bool:
        """Whether forward passes are wanted: they are where it is said so, and where texts or prompts are given."""
        return self.deep or bool(self.texts or self.prompts)

    def holds(self, name: str) -> bool:
        """Return whether something was given under this name."""
        value = getattr(self, name)
        return value is not None and value is not False and (not isinstance(value, Sequence) or len(value) > 0)
