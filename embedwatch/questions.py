"""What an audit asks of the models and the words among its inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.inquiry import Inquiry

__all__ = ["Questions"]

TEXTS, PROMPTS = 256, 32
"""So many texts and prompts of a file are given to a model that is examined, at most: the first ones."""


@dataclass(frozen=True)
class Questions:
    """What is asked of models."""

    text: str | os.PathLike[str] | None
    prompts: str | os.PathLike[str] | None
    corpus: str | os.PathLike[str] | None
    words: str | os.PathLike[str] | None
    length: int | None
    deep: bool

    def check(self, sources: Sequence[Source]) -> None:
        """Refuse questions about models where there is none."""
        from embedwatch.sources.subject import TokenTable

        asked = {"prompts": self.prompts, "corpus": self.corpus, "length": self.length, "deep": self.deep or None}
        named = next((name for name, value in asked.items() if value is not None), None)
        if named is not None and not any(isinstance(source, TokenTable) for source in sources):
            raise UsageError(
                f"`{named}` must come with a model, got {sources[0].label}, which is none; name the model's folder"
            )
        if self.words is not None:
            from embedwatch.lexicons import load_lexicons

            load_lexicons(self.words)  # refused at once, and not one diagnostic later
        if self.length is not None and self.length < 1:
            raise UsageError(f"`length` must be at least 1 token, got {self.length}; give the longest text's tokens")

    def inquiry(self, subject: Any) -> Inquiry:
        """Return them about one model."""
        from embedwatch.sources.texts import first_texts

        return Inquiry(
            subject,
            texts=() if self.text is None else first_texts(Path(self.text), TEXTS),
            prompts=() if self.prompts is None else first_texts(Path(self.prompts), PROMPTS),
            corpus=None if self.corpus is None else Path(self.corpus),
            length=self.length,
            words=self.words,
            deep=self.deep,
        )
