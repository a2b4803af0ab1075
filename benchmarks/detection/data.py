"""The vectors of all models and sources, and their topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torch import Tensor

from benchmarks.detection import texts, vectors
from benchmarks.detection.pairs import topics_of

BASES = ("stdlib", "brown")
SOURCES = (*BASES, "glosses")
WORDNET = Path("/usr/share/wordnet")


@dataclass
class Data:
    """Vectors by model and source, encoded where they are asked for and not kept.

    Args:
        brown: folder of the Brown corpus.
        wordnet: folder of WordNet.
        models: names of the models.
    """

    brown: Path
    wordnet: Path = WORDNET
    models: tuple[str, ...] = tuple(vectors.MODELS)
    _corpora: dict[str, texts.Corpus] = field(default_factory=dict)
    _rows: dict[tuple[str, str, str], Tensor] = field(default_factory=dict)
    _topics: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def corpus(self, source: str) -> texts.Corpus:
        """Return the sentences of a source."""
        if source not in self._corpora:
            made: dict[str, Callable[[], texts.Corpus]] = {
                "stdlib": texts.stdlib,
                "brown": partial(texts.brown, self.brown),
                "glosses": partial(texts.glosses, self.wordnet),
            }
            self._corpora[source] = made[source]()
        return self._corpora[source]

    def rows(self, model: str, source: str, variant: str = "") -> Tensor:
        """Return the vectors of a source, rounded to half precision and normalised. (N, D)."""
        key = model, source, variant
        if key not in self._rows:
            self._rows[key] = vectors.stored(vectors.encoded(model, source, self.corpus(source).texts, variant))
        return self._rows[key]

    def own_lengths(self, model: str, source: str) -> Tensor:
        """Return the vectors of a source with the lengths that the model gives, rounded to half precision. (N, D)."""
        return vectors.encoded(model, source, self.corpus(source).texts).half().float()

    def topics(self, model: str, source: str) -> list[str]:
        """Return the topic of each row: as the source names it, or by k-means in this model's space."""
        return self.corpus(source).topics or self.clusters(model, source)

    def clusters(self, model: str, source: str) -> list[str]:
        """Return the topic of each row by k-means in this model's space."""
        if (model, source) not in self._topics:
            self._topics[model, source] = topics_of(self.rows(model, source))
        return self._topics[model, source]

    def spaces(self) -> Iterator[tuple[str, str]]:
        """Yield each model with each source that references are taken from."""
        for model in self.models:
            for base in BASES:
                yield model, base

    def sizes(self) -> dict[str, int]:
        """Return how many sentences each source has."""
        return {source: len(self.corpus(source).texts) for source in SOURCES}
