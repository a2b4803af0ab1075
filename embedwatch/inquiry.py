"""Inquiry: a model, and what is asked about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.loading.examinable import Examinable

__all__ = ["Inquiry"]


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

    @property
    def runs(self) -> bool:
        """Whether forward passes are wanted: they are where it is said so, and where texts or prompts are given."""
        return self.deep or bool(self.texts or self.prompts)

    def holds(self, name: str) -> bool:
        """Return whether something was given under this name."""
        value = getattr(self, name)
        return value is not None and value is not False and (not isinstance(value, Sequence) or len(value) > 0)
