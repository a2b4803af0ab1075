"""Words as vectors of a model: rows of its token table, or hidden states of its tokens in a sentence."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embedwatch.core.errors import InputError
from embedwatch.loading.examinable import Examinable
from embedwatch.loading.heads import is_writer, saved_class
from embedwatch.loading.messages import first_line
from embedwatch.loading.probing import hidden_of, reader_of
from embedwatch.loading.quiet import quiet
from embedwatch.loading.subject import Subject

__all__ = ["WordVectors", "contextual_words", "encoded_words", "known_words", "table_words", "word_tokens", "writes"]

SLOT = "{word}"
LETTERS_A_TOKEN = 3
"""A language is known where its words are cut into tokens of so many letters or more; one, where a letter is a word."""
BATCH = 64
SINGLE_SHARE, SINGLE_WORDS = 0.5, 200
"""Words of one token stand alone where they are half of all, or so many; else words are the means of their tokens."""

Tokens = Mapping[str, tuple[int, ...]]


class WordVectors(NamedTuple):
    """Words with their vectors.

    Args:
        words: (N,) each once.
        vectors: (N, D).
        tokens: (N,) the tokens that each was made of.
    """

    words: tuple[str, ...]
    vectors: Tensor
    tokens: tuple[tuple[int, ...], ...] = ()


def word_tokens(tokenizer: Any, words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the tokens of each word, as it stands within a sentence or at its beginning, whatever is shorter.

    Tokens that are a blank alone do not count. A word with a token that stands for the unknown is left out.
    """
    unknown = tokenizer.unk_token_id
    blank = {None, *tokenizer.all_special_ids}
    found: dict[str, tuple[int, ...]] = {}
    with quiet():
        inside = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
        first = tokenizer(list(words), add_special_tokens=False)["input_ids"]
        for word, *ways in zip(words, inside, first, strict=True):
            kept = [_without_blank(tokenizer, ids) for ids in ways if unknown is None or unknown not in ids]
            kept = [ids for ids in kept if ids and not blank.intersection(ids)]
            if kept:
                found[word] = min(kept, key=len)
    return found


def known_words(tokens: Tokens) -> list[str]:
    """Return the words that a tokenizer knows: those that it does not cut into letters or bytes."""
    return [word for word, ids in tokens.items() if len(ids) <= max(1, math.ceil(_length(word)))]


def table_words(subject: Examinable, tokens: Tokens) -> tuple[WordVectors, bool]:
    """Return words as rows of the token table, and whether they are means of several tokens.

    Raises:
        InputError: if the model has no table.
    """
    table = subject.token_table()
    inside = {word: ids for word, ids in tokens.items() if max(ids) < len(table)}
    single = {word: ids for word, ids in inside.items() if len(ids) == 1}
    whole = len(single) >= min(SINGLE_SHARE * len(inside), SINGLE_WORDS)
    chosen = single if whole else inside
    rows: dict[int, Tensor] = {}
    for number in sorted({number for ids in chosen.values() for number in ids}):
        rows[number] = table.read(number, number + 1)[0].float()
    vectors = [torch.stack([rows[number] for number in ids]).mean(0) for ids in chosen.values()]
    return _vectors(chosen, vectors, table.dimension), not whole


def encoded_words(subject: Examinable, tokens: Tokens) -> WordVectors:
    """Return words as the model encodes them, each as a text of its own.

    Raises:
        InputError: if it does not encode texts.
    """
    return WordVectors(tuple(tokens), subject.encode(list(tokens)), tuple(tokens.values()))


def writes(subject: Examinable) -> bool:
    """Return whether a model goes on with texts: there a word alone is a first token, which is an attention sink."""
    if isinstance(subject, Subject):  # asked without building it
        saved = saved_class(subject.blueprint)
        return saved is not None and is_writer(saved, subject.settings)
    return subject.writer() is not None


def contextual_words(subject: Examinable, tokens: Tokens, templates: Sequence[str]) -> WordVectors:
    """Return words as the hidden states of their tokens in a sentence, averaged over tokens and templates.

    Sentences of as many tokens go through the model together, so that none is padded. A word whose place is lost in one
    of the sentences is left out. The model should be at rest (`embedwatch.observe.resting`): with dropout on,
    states are noise.

    Raises:
        InputError: if the tokenizer does not tell where tokens stand, or the model does not give hidden states.
    """
    sums: dict[str, Tensor] = {}
    counts = dict.fromkeys(tokens, 0)
    reader = reader_of(subject.module())
    with torch.no_grad(), quiet():
        for template in templates or (SLOT,):
            for words, ids, places in _sentences(subject, tokens, template):
                states = hidden_of(reader, ids)  # (B, T, D)
                means = (states * places[:, :, None]).sum(1) / places.sum(1, keepdim=True)  # (B, D)
                for word, mean in zip(words, means, strict=True):
                    sums[word] = sums[word] + mean if word in sums else mean
                    counts[word] += 1
    whole = {word: ids for word, ids in tokens.items() if counts[word] == max(1, len(templates))}
    return _vectors(whole, [sums[word] / counts[word] for word in whole], subject.dimension)


def _sentences(subject: Examinable, tokens: Tokens, template: str) -> Iterator[tuple[list[str], Tensor, Tensor]]:
    """Yield words with the tokens of their sentences (B, T), and which tokens are theirs (B, T)."""
    start = template.index(SLOT)
    by_length: dict[int, list[tuple[str, list[int], list[int]]]] = {}
    tokenizer = subject.tokenizer
    words = list(tokens)
    try:
        found = tokenizer([template.replace(SLOT, word) for word in words], return_offsets_mapping=True)
    except Exception as error:
        raise InputError(
            f"`{subject.label}` must have a tokenizer that tells where its tokens stand, got {first_line(error)}; "
            "save a tokenizer.json beside the model"
        ) from error
    for word, ids, offsets in zip(words, found["input_ids"], found["offset_mapping"], strict=True):
        stop = start + len(word)
        places = [int(low < stop and high > start and high > low) for low, high in offsets]
        if any(places):
            by_length.setdefault(len(ids), []).append((word, ids, places))
    for same in by_length.values():
        for begin in range(0, len(same), BATCH):
            batch = same[begin : begin + BATCH]
            yield (
                [word for word, *_ in batch],
                torch.tensor([ids for _, ids, _ in batch]),
                torch.tensor([places for *_, places in batch], dtype=torch.float32),
            )


def _vectors(tokens: Tokens, vectors: Sequence[Tensor], dimension: int) -> WordVectors:
    rows = torch.stack(list(vectors)) if vectors else torch.zeros(0, dimension)  # (N, D)
    return WordVectors(tuple(tokens), rows, tuple(tokens.values()))


def _without_blank(tokenizer: Any, ids: Sequence[int]) -> tuple[int, ...]:
    kept = tuple(ids)
    while kept and not str(tokenizer.convert_ids_to_tokens(kept[0])).strip(" ▁Ġ"):
        kept = kept[1:]
    return kept


def _length(word: str) -> float:
    """Return how many tokens a word may have: a third of its letters, where a letter is a word each."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in word)
    return wide + (len(word) - wide) / LETTERS_A_TOKEN
