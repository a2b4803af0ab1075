"""Real sentences of three sources, and the topic of each where its source tells."""

from __future__ import annotations

import random
import runpy
import sysconfig
from pathlib import Path
from typing import NamedTuple

EXAMPLE = Path(__file__).parents[2] / "examples" / "stdlib_sentences.py"
PER_GENRE = 1_000
GLOSSES = 5_000
WORDS = (5, 40)
"""Words of a sentence: fewer tell little, more are cut by the models."""
PARTS_OF_SPEECH = ("noun", "verb", "adj")


class Corpus(NamedTuple):
    """Sentences of one source.

    Args:
        texts: the sentences.
        topics: topic of each; empty where the source names none.
    """

    texts: list[str]
    topics: list[str]


def stdlib() -> Corpus:
    """Return the first sentences of the docstrings in Python's standard library."""
    return Corpus(runpy.run_path(str(EXAMPLE))["sentences"](Path(sysconfig.get_path("stdlib"))), [])


def brown(folder: Path) -> Corpus:
    """Return sentences of the Brown corpus, spread over each of its 15 genres, which are the topics.

    Args:
        folder: holds files ca01 to cr09, in which each word has its tag behind a slash.
    """
    genres: dict[str, dict[str, None]] = {}
    for path in sorted(folder.glob("c[a-r][0-9][0-9]")):
        for line in path.read_text(encoding="utf-8", errors="ignore").splitlines():
            words = [word.rsplit("/", 1)[0] for word in line.split()]
            if WORDS[0] <= len(words) <= WORDS[1]:
                genres.setdefault(path.name[1], {})[" ".join(words)] = None
    chosen = {genre: _spread(list(texts), PER_GENRE) for genre, texts in genres.items()}
    return Corpus(
        [text for texts in chosen.values() for text in texts],
        [genre for genre, texts in chosen.items() for _ in texts],
    )


def glosses(folder: Path) -> Corpus:
    """Return definitions of WordNet, in an order of chance.

    Args:
        folder: holds `data.noun`, `data.verb` and `data.adj`.
    """
    found: dict[str, None] = {}
    for name in PARTS_OF_SPEECH:
        for line in (folder / f"data.{name}").read_text(encoding="utf-8", errors="ignore").splitlines():
            if not line.startswith("  ") and "|" in line:
                found[line.split("|", 1)[1].strip().split(";")[0]] = None
    long = [text for text in found if len(text.split()) >= WORDS[0]]
    random.Random(0).shuffle(long)  # noqa: S311  # no secret
    return Corpus(long[:GLOSSES], [])


def _spread(items: list[str], limit: int) -> list[str]:
    """Return at most `limit` items at even distances."""
    count = min(limit, len(items))
    return [items[index * len(items) // count] for index in range(count)]
