"""Whether words that belong together lie together in a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.errors import InputError
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.inquiry import Inquiry
from embedwatch.lexicons import Lexicon, WordGroup, load_lexicons
from embedwatch.loading.word_vectors import (
    WordVectors,
    contextual_words,
    encoded_words,
    known_words,
    table_words,
    word_tokens,
    writes,
)
from embedwatch.meaning.measuring import METRICS, Found, coverage, exhibits_of, measurements_of
from embedwatch.meaning.study import study_words
from embedwatch.observe.resting import resting

KNOWN_SHARE = 0.5
"""A language of ours is asked where a tokenizer knows so many of its words."""


class WordGroups(Diagnostic):
    """Synonyms, contrasts, topics and random pairs side by side: in the token table, as texts, within sentences.

    For each lexicon and each sort of vectors: mean cosine inside groups, margin over words that share no group, margin
    in their standard deviations, and AUC, with nothing removed, with the mean removed, and with the widest directions
    removed as well (one for a hundred dimensions). Chance is what the same vectors show, dealt to words at random.

    Words are rows of the token table where they are one token (`table`), else means of their tokens (`pieces`). Where
    the model may be run they are texts of their own as well (`texts`, unless the model writes: there a word alone is a
    first token, which attention uses as a sink), and hidden states of their tokens in a sentence (`context`). Lexicons
    that come with the package are asked where the tokenizer knows half of their words.

    Range: cosines and margins -1 to 1, AUC 0 to 1.
    Empty: only the coverage of a lexicon of which the model knows no group.
    References: Mu & Viswanath 2018, "All-but-the-top" (arXiv 1702.01417); Ethayarajh 2019 (arXiv 1909.00512) for the
    cone in which vectors of healthy models lie; Mann & Whitney 1947 for the AUC.
    """

    name = "word_groups"
    title = "groups of words"
    place = "meaning"
    metrics: ClassVar = METRICS

    def examine(self, subject: Inquiry) -> tuple[Sequence[Measurement], Sequence[Exhibit]]:
        """Return the measurements of all lexicons that the model knows."""
        asked = isinstance(subject.words, (Lexicon, list, tuple)) or subject.words not in (None, "default", "classic")
        measurements: list[Measurement] = []
        studies: list[Found] = []
        for lexicon in load_lexicons(subject.words):
            tokens = word_tokens(subject.subject.tokenizer, lexicon.words)
            known = known_words(tokens)
            if not asked and len(known) < KNOWN_SHARE * len(lexicon.words):
                measurements.append(coverage(lexicon.language, "table", len(known), len(lexicon.words)))
                continue
            for kind, found in _vectors(subject, lexicon, tokens):
                measurements.append(coverage(lexicon.language, kind, len(found.words), len(lexicon.words)))
                study = study_words(lexicon, found, seed=subject.seed)
                if study is not None:
                    measurements += measurements_of(kind, study)
                    studies.append((kind, study))
        return measurements, exhibits_of(studies)

    @classmethod
    def examples(cls) -> Iterable[Inquiry]:
        """Yield a model, and groups of the words that it knows."""
        from embedwatch.loading.tiny import tiny_subject

        words = [f"w{number}" for number in range(48)]
        pairs = [WordGroup("synonyms", "pair", tuple(words[at : at + 2])) for at in range(0, 24, 2)]
        topics = [WordGroup("topics", f"topic {at}", tuple(words[at : at + 8])) for at in range(24, 48, 8)]
        yield Inquiry(tiny_subject("bert"), words=Lexicon("en", (*pairs, *topics)))


def _vectors(
    inquiry: Inquiry, lexicon: Lexicon, tokens: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, WordVectors]]:
    """Yield what each sort of vectors is called, and the vectors of words; what a model has not is left out."""
    model = inquiry.subject
    if model.vocabulary and tokens:
        found, pieces = table_words(model, tokens)
        yield ("pieces" if pieces else "table"), found
    if not inquiry.runs or not tokens:
        return
    with resting([model.module()]):
        if not writes(model):
            with suppress(InputError):  # it makes no vectors of texts: then there are none to judge
                yield "texts", encoded_words(model, tokens)
        with suppress(InputError):
            yield "context", contextual_words(model, tokens, lexicon.templates)
