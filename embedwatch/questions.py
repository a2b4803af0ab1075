"""What an audit asks of the models and the words among its inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.core.source import Source
from embedwatch.inquiry import Inquiry, check_length

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
        check_length(self.length)
        self._check_files(sources)

    def _check_files(self, sources: Sequence[Source]) -> None:
        """Refuse files that cannot be read, or that no model among the inputs can cut into tokens."""
        from embedwatch.loading.corpus import check_corpus
        from embedwatch.sources.subject import TokenTable
        from embedwatch.sources.texts import first_texts

        models = [source.subject for source in sources if isinstance(source, TokenTable)]
        if self.prompts is not None:
            first_texts(Path(self.prompts), 1)
        if self.corpus is not None:
            check_corpus(Path(self.corpus))
        if any(asked is not None for asked in (self.prompts, self.corpus, self.words)):
            for subject in models:
                _ = subject.tokenizer  # refused where there is none
        if self.deep:
            for subject in models:
                subject.module()  # refused where it cannot be run: nothing deep could be said
        if self.prompts is not None and not any(subject.writer() is not None for subject in models):
            raise UsageError(
                f"`prompts` must come with a model that writes, got {models[0].label}, which only reads; leave them out"
            )

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
