"""Rows that have names, such as word vectors in a file: those whose names a lexicon has."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from embedwatch.core.source import Source
from embedwatch.lexicons import Lexicon
from embedwatch.loading.word_vectors import WordVectors

__all__ = ["named_words"]


def named_words(source: Source, lexicons: Iterable[Lexicon]) -> WordVectors:
    """Return the words of some lexicons that are names of rows, with these rows.

    A name that is the word itself is taken before one that differs in capitals, the first of several before the others.
    Words of names with blanks are written with `_` in most files: both are known.

    Args:
        source: any whose rows have names: GloVe, word2vec, Parquet with names, the token table of a model.
        lexicons: whose words are wanted.

    Raises:
        InputError: if the source cannot be read.
    """
    spelled = {_spelling(word): word for lexicon in lexicons for word in lexicon.words}
    folded = {name.casefold(): word for name, word in reversed(spelled.items())}
    exact: dict[str, torch.Tensor] = {}
    near: dict[str, torch.Tensor] = {}
    start = 0
    for batch in source.batches(source.batch_rows):
        names = source.names(range(start, start + len(batch)))
        start += len(batch)
        for place, name in enumerate(map(_spelling, names)):
            if (word := spelled.get(name)) is not None:
                exact.setdefault(word, batch.rows[place].float().cpu())
            elif (word := folded.get(name.casefold())) is not None:
                near.setdefault(word, batch.rows[place].float().cpu())
    found = {**near, **exact}
    words = tuple(word for word in spelled.values() if word in found)
    rows = torch.stack([found[word] for word in words]) if words else torch.zeros(0, source.dimension or 0)
    return WordVectors(words, rows)


def _spelling(name: str) -> str:
    return name.replace(" ", "_")
