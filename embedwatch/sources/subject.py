"""Sources over a Subject: its token table, and texts that it encodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.loading.find import cached_directory, is_model
from embedwatch.loading.messages import printable
from embedwatch.loading.tokens import token_name
from embedwatch.sources._labels import Labels
from embedwatch.sources._text_lines import TextLines

if TYPE_CHECKING:
    from embedwatch.loading import Subject
    from embedwatch.loading.encoder import TextEncoder

__all__ = ["EncodedTexts", "TokenTable"]

LONGEST_NAME = 80
"""Characters of a text that stand for its row."""


class TokenTable(Source):
    """The token table of a model: one row a token, read from the weights by slices.

    Args:
        subject: an opened model.

    Raises:
        InputError: if the model has no token table, or a quantised one.
    """

    name = "model"
    title = "Model"
    place = "token_table"
    role = "table"

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.label = subject.label
        self._table = subject.token_table()
        self.rows = len(self._table)
        self.dimension = self._table.dimension

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return whether this is a directory with config.json, or the name of a model in the local hub cache."""
        try:
            return is_model(path) or (not path.exists() and cached_directory(path.as_posix()) is not None)
        except (OSError, ValueError):  # a name too long, or with a zero byte
            return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> TokenTable:
        """Open the token table of a model; it has nothing to select from, and no column of labels."""
        if select is not None:
            raise UsageError(
                f"`select` must be left out for a model, got {select!r}; open its safetensors file instead"
            )
        if labels is not None:
            raise UsageError(f"`labels` must be a file for a model, got the column {labels!r}; write one label a line")
        from embedwatch.loading import load_subject

        return cls(load_subject(path))

    @cached_property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]  # worked out when first asked: it opens the tokenizer
        """What a reader of the numbers must know."""
        return (*self.subject.notes, *self._unnamed())

    def _unnamed(self) -> tuple[str, ...]:
        try:
            known = len(self.subject.tokenizer)
        except InputError:
            return ("the model has no tokenizer that can be read, so its tokens have no names",)
        rows = len(self._table)
        if known > rows:
            return (f"the tokenizer knows {known:,} tokens, more than the {rows:,} rows of the table",)
        return (
            (f"{rows - known:,} of {rows:,} rows belong to no token: they fill up the table",) if known < rows else ()
        )

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield the rows in the type in which they are stored."""
        return self._read(_checked(size))

    def _read(self, size: int) -> Iterator[VectorBatch]:
        for start in range(0, len(self._table), size):
            rows = self._table.read(start, min(start + size, len(self._table)))  # (N, D)
            yield VectorBatch(rows, torch.arange(start, start + len(rows)), source=self.label)

    def fingerprint(self) -> str:
        """Return 16 hex digits of the hash of every byte of the table."""
        return self._table.fingerprint()

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the tokens; the row numbers where the model has no tokenizer."""
        try:
            tokenizer = self.subject.tokenizer
        except InputError:
            return super().names(rows)
        return [token_name(tokenizer, int(row)) for row in rows]


class EncodedTexts(Source):
    """Texts of a file, one a line, as vectors of a model. The texts are streamed, never all held.

    Args:
        subject: an opened model.
        path: UTF-8, one text a line; blank lines are skipped.
        labels: file with one label a line for each line that is not blank, an empty line for none.
        pooling: `mean`, `cls`, `last` or `max` instead of the model's own.
        prefix: stands before every text, instead of the model's own default prompt.

    Raises:
        InputError: if a file cannot be read, if the numbers of texts and labels differ, or the model cannot encode.
        UsageError: if there is no such pooling.
    """

    title = "Texts"
    place = "sentences"
    role = "pooled"
    batch_rows = 256

    def __init__(
        self,
        subject: Subject,
        path: str | Path,
        *,
        labels: str | Path | None = None,
        pooling: str | None = None,
        prefix: str | None = None,
    ) -> None:
        self.subject = subject
        self.label = subject.label
        self._texts = TextLines(path)
        self._labels = None if labels is None else Labels(labels)
        if self._labels is not None:
            self._labels.check(self._texts.rows, "text", self._texts.label)
        self._encoder: TextEncoder = subject.encoder(pooling=pooling, prefix=prefix)
        self.rows = self._texts.rows
        self.dimension = self._encoder.dimension
        self.notes = self._describe(seen=0, cut=0, empty=0)

    @property
    def encoder(self) -> TextEncoder:
        """The way from texts to vectors."""
        return self._encoder

    @property
    def texts(self) -> TextLines:
        """The texts, one a row."""
        return self._texts

    @classmethod
    def accepts(cls, path: Path) -> bool:
        """Return false: texts alone are no vectors, they need a model."""
        return False

    @classmethod
    def open(cls, path: Path, *, select: str | None = None, labels: str | None = None) -> EncodedTexts:
        """Refuse: texts need a model."""
        raise UsageError(
            f"`{path}` must come with a model that encodes it; use EncodedTexts(load_subject(MODEL), FILE)"
        )

    def batches(self, size: int) -> Iterator[VectorBatch]:
        """Yield vectors in the order of the file. At the end the notes say how many texts were cut."""
        batches = self._encode(_checked(size))
        return batches if self._labels is None else self._labels.attach(batches, "text", self._texts.label)

    def _encode(self, size: int) -> Iterator[VectorBatch]:
        lines, seen, cut, empty = self._texts.lines(), 0, 0, 0
        while texts := [line.text for line in islice(lines, size)]:
            encoded = self._encoder.encode(texts)
            ids = torch.arange(seen, seen + len(texts))
            seen, cut, empty = seen + len(texts), cut + encoded.cut, empty + encoded.empty
            self.notes = self._describe(seen=seen, cut=cut, empty=empty)
            yield VectorBatch(encoded.vectors, ids, source=self.label)

    def _describe(self, *, seen: int, cut: int, empty: int) -> tuple[str, ...]:
        notes = [*self.subject.notes, *self._encoder.notes]
        if self._texts.blank:
            lines = self._texts.rows + self._texts.blank
            notes.append(f"{self._texts.blank:,} of {lines:,} lines of {self._texts.label} are blank and were skipped")
        if cut:
            notes.append(f"{cut:,} of {seen:,} texts are longer than {self._encoder.limit:,} tokens and were cut")
        if empty:
            notes.append(f"{empty:,} of {seen:,} texts gave no token and became zero vectors")
        return tuple(notes)

    def fingerprint(self) -> str:
        """Return a short hash that changes with the model, with its way from texts to vectors, and with the texts."""
        parts = [self.subject.fingerprint(), self._texts.fingerprint(), *self._encoder.notes]
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return each text, shortened, behind the number of its line in the file."""
        return [f"line {line.number}: {_short(line.text)}" for line in self._texts.find([int(row) for row in rows])]


def _checked(size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UsageError(f"`size` must be a whole number of at least 1, got {size!r}; 8192 is a good one")
    return size


def _short(text: str) -> str:
    text = printable(text.strip())
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
