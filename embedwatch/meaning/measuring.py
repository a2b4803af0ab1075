"""Measurements and exhibits of word groups: synonyms, contrasts, topics and random pairs side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from embedwatch.core.exhibit import Cell, Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.lexicons import RELATIONS, load_lexicons
from embedwatch.loading.word_vectors import WordVectors
from embedwatch.meaning.study import REMOVED, Study, study_words

__all__ = ["METRICS", "coverage", "exhibits_of", "measure", "measurements_of"]

WHERE = ("lexicon", "vectors")
LOOSEST = 60
"""Groups of one relation that the exhibit shows."""

COVERAGE = Metric(
    "word_coverage_ratio", "Share of the words of a lexicon that the space knows.", labels=WHERE, headline=False
)
GROUPS = Metric("word_groups", "Groups of a lexicon of which the space has two words or more.", "groups", labels=WHERE)
COSINE = Metric(
    "word_cosine",
    "Mean cosine of words that belong together, each group with the same weight, and of words that share no group.",
    labels=(*WHERE, "relation", "removed"),
    headline=False,
)
MARGIN = Metric(
    "word_margin",
    "Mean cosine of words that belong together less that of words that share no group.",
    labels=(*WHERE, "relation", "removed"),
    headline=False,
)
GAP = Metric(
    "word_gap",
    "The margin in standard deviations of words that share no group.",
    healthy="> 1",
    labels=(*WHERE, "relation", "removed"),
    headline=False,
)
AUC = Metric(
    "word_auc",
    "Probability that words that belong together are closer than words that share no group; 0.5 is chance.",
    healthy="> 0.75 for related",
    labels=(*WHERE, "relation", "removed"),
    headline=False,
)
RELATED = Metric(
    "word_related_auc",
    "Mean of the probabilities for synonyms and topics, the common mean removed; 0.5 is chance.",
    healthy="> 0.75",
    labels=WHERE,
)
CHANCE = Metric(
    "word_related_auc_chance",
    "What 99 % of spaces without meaning stay below, the same vectors dealt to words at random.",
    labels=WHERE,
)
P_VALUE = Metric(
    "word_related_p_value", "Share of spaces without meaning that do as well, one of all at least.", labels=WHERE
)
LOOSE = Metric(
    "word_topics_loose_ratio",
    "Share of topics whose words are no closer than the same words at random.",
    healthy="< 0.25",
    labels=WHERE,
)
SILHOUETTE = Metric(
    "word_silhouette",
    "Mean silhouette of words of one topic, by cosine distance, the common mean removed.",
    labels=WHERE,
    headline=False,
)
CLASSIC = Metric(
    "word_classic_ratio",
    "Share of synonyms with a cosine above 0.6, of contrasts with one below 0.1: often told, kept by no healthy model.",
    labels=(*WHERE, "relation"),
)
METRICS = (
    COVERAGE,
    GROUPS,
    COSINE,
    MARGIN,
    GAP,
    AUC,
    RELATED,
    CHANCE,
    P_VALUE,
    LOOSE,
    SILHOUETTE,
    CLASSIC,
)

Found = tuple[str, Study]
"""What the vectors of the words are, and what they show."""


def measure(
    words: Sequence[str], vectors: Tensor, *, lexicons: Any = None, kind: str = "rows", seed: int = 0
) -> tuple[list[Measurement], list[Exhibit]]:
    """Return measurements and exhibits of rows that have names.

    Args:
        words: name of each row, each once; others than the lexicons have are of no use.
        vectors: (N, D).
        lexicons: what `embedwatch.lexicons.load_lexicons` takes; all that come with the package by default.
        kind: what the vectors are, for labels.
        seed: of the null distribution.

    Raises:
        InputError: if a file of words cannot be read.
        UsageError: if there is no such lexicon.

    Example:
        >>> import torch
        >>> from embedwatch.lexicons import load_lexicon
        >>> words = load_lexicon("en").words
        >>> rows = torch.randn(len(words), 16, generator=torch.Generator().manual_seed(0))
        >>> measurements, _ = measure(words, rows, lexicons="en")
        >>> related = next(m.number for m in measurements if m.name == "word_related_auc")
        >>> 0.45 < related < 0.55
        True
    """
    place = {word: row for row, word in enumerate(words)}
    measurements: list[Measurement] = []
    studies: list[Found] = []
    for lexicon in load_lexicons(lexicons):
        known = [word for word in lexicon.words if word in place]
        measurements.append(coverage(lexicon.language, kind, len(known), len(lexicon.words)))
        study = study_words(lexicon, WordVectors(tuple(known), vectors[[place[word] for word in known]]), seed=seed)
        if study is not None:
            measurements += measurements_of(kind, study)
            studies.append((kind, study))
    return measurements, exhibits_of(studies)


def coverage(language: str, kind: str, known: int, words: int) -> Measurement:
    """Return the share of the words of a lexicon that a space knows."""
    return COVERAGE.measure(known / words, lexicon=language, vectors=kind)


def measurements_of(kind: str, study: Study) -> list[Measurement]:
    """Return the numbers of one study, without its coverage."""
    at: dict[str, Any] = {"lexicon": study.lexicon.language, "vectors": kind}
    loose = float(study.loose.double().mean()) if len(study.loose) else None
    found = [GROUPS.measure(study.groups, **at)]
    for removed in REMOVED:
        view = study.views[removed]
        labels = {**at, "removed": removed}
        for relation in RELATIONS:
            found.append(COSINE.measure(view.cosine.get(relation), relation=relation, **labels))
            found.append(MARGIN.measure(view.margin(relation), relation=relation, **labels))
            found.append(GAP.measure(view.gap(relation), relation=relation, **labels))
            found.append(AUC.measure(view.auc.get(relation), relation=relation, **labels))
        found.append(COSINE.measure(view.random, relation="random", **labels))
    return [
        *found,
        RELATED.measure(study.views["mean"].related, **at),
        CHANCE.measure(study.chance, **at),
        P_VALUE.measure(study.p_value, **at),
        LOOSE.measure(loose, **at),
        SILHOUETTE.measure(study.silhouette, **at),
        *(CLASSIC.measure(study.classic.get(name), relation=name, **at) for name in ("synonyms", "contrasts")),
    ]


def exhibits_of(studies: Sequence[Found]) -> list[Exhibit]:
    """Return the loosest groups of each study, and the cosines between its topics."""
    if not studies:
        return []
    return [
        Exhibit.build(
            "loose_word_groups",
            "table",
            f"Groups of words by relation, the loosest first, up to {LOOSEST}; AUC 0.5 is chance, the mean removed.",
            ("group", "auc", "lexicon", "vectors", "relation", "words", "cosine", "weakest"),
            (row for kind, study in studies for row in _loosest(kind, study)),
        ),
        Exhibit.build(
            "word_topics",
            "matrix",
            "Mean cosine between the words of two topics, the mean removed; each pair of topics once.",
            ("lexicon", "vectors", "group", "other_group", "cosine"),
            (row for kind, study in studies for row in _cells(kind, study)),
        ),
    ]


def _loosest(kind: str, study: Study) -> Iterable[Sequence[Cell]]:
    for relation in reversed(RELATIONS):
        groups = study.found[relation]
        if not groups:
            continue
        cosines, aucs = study.views["mean"].groups[relation]
        for place in aucs.nan_to_num(0.0).argsort()[:LOOSEST].tolist():
            found = groups[place]
            yield (
                found.group.name,
                _cell(aucs[place]),
                study.lexicon.language,
                kind,
                relation,
                len(found.rows),
                _cell(cosines[place]),
                study.weakest(found) if len(found.rows) > 2 else None,
            )


def _cells(kind: str, study: Study) -> Iterable[Sequence[Cell]]:
    if not study.found["topics"]:
        return
    names, cosines = study.matrix()
    for place, name in enumerate(names):
        for other in range(place, len(names)):
            yield study.lexicon.language, kind, name, names[other], _cell(cosines[place, other])


def _cell(number: Tensor) -> float | None:
    value = float(number)
    return value if math.isfinite(value) else None
