"""What a canary is made from on disk: files of texts, files of vectors, models."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from embedwatch.canary.embedding import Embed
from embedwatch.core.errors import InputError
from embedwatch.stats.canary import MOST_TEXTS

__all__ = ["Embedder", "model_embedder", "read_texts", "read_vectors"]


class Embedder(NamedTuple):
    """Something that embeds texts: the function, its name for people, a fingerprint of it, and how it does it."""

    embed: Embed
    label: str
    fingerprint: str = ""
    notes: tuple[str, ...] = ()


def read_texts(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the texts of a file, one a line, without blank lines.

    Raises:
        InputError: if it cannot be read, or holds more than a canary can have.
    """
    from embedwatch.sources._text_lines import TextLines

    lines = TextLines(Path(path))
    if lines.rows > MOST_TEXTS:
        raise InputError(f"{lines.label} must hold at most {MOST_TEXTS:,} texts, got {lines.rows:,}; choose some")
    return tuple(line.text for line in lines.lines())


def read_vectors(path: str | os.PathLike[str], *, kind: str | None = None, select: str | None = None) -> Tensor:
    """Return the vectors of a file. Shape: (N, D) float32.

    Raises:
        InputError: if it cannot be read, or holds more rows than a canary can have.
        UsageError: if no Source fits.
    """
    from embedwatch.sources import open_source

    source = open_source(path, kind, select=select)
    parts, count = [], 0
    for batch in source.batches(MOST_TEXTS + 1):
        parts.append(batch.rows.float())
        count += len(batch)
        if count > MOST_TEXTS:
            break
    if not parts or count > MOST_TEXTS:
        told = "none" if not parts else f"more than {MOST_TEXTS:,}"
        raise InputError(
            f"{source.label} must hold one row for each text, got {told}; embed up to {MOST_TEXTS:,} texts"
        )
    return torch.cat(parts)


def model_embedder(path: str | os.PathLike[str], *, pooling: str | None = None, prefix: str | None = None) -> Embedder:
    """Return what embeds texts with a model on disk, by its own recipe unless told otherwise.

    Args:
        path: a directory, or the name of a model in the local hub cache.
        pooling: how token vectors become one.
        prefix: put before each text.

    Raises:
        InputError: if there is no such model, or it cannot encode texts.
    """
    from embedwatch.loading import load_subject

    subject = load_subject(Path(path))
    encoder = subject.encoder(pooling=pooling, prefix=prefix)

    def embed(texts: Sequence[str]) -> Tensor:
        return encoder.encode(list(texts), size=len(texts)).vectors

    told = "\0".join((subject.fingerprint(), *encoder.notes))
    digest = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
    return Embedder(embed, subject.label, digest, encoder.notes)
