"""Lexicon: groups of words that say what a space should hold together, and what it need not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["RELATIONS", "TOPIC_WORDS", "Lexicon", "WordGroup"]

RELATIONS = ("synonyms", "contrasts", "topics")
"""How the words of a group belong together."""
TOPIC_WORDS = 8
"""Words that a topic of ours has at least; one of somebody else's may have fewer."""


@dataclass(frozen=True)
class WordGroup:
    """Words that belong together.

    Args:
        relation: `synonyms` mean nearly the same, `contrasts` differ in one respect (antonyms), `topics` are of one
            field.
        name: for people.
        words: two or more, each once.
    """

    relation: str
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Lexicon:
    """Groups of words of one language.

    Args:
        language: short name, for labels: `en`, `zh`.
        groups: of all relations.
        templates: sentences with `{word}` in them, in which a model is shown a word.
        origin: who made it, and under which licence.

    Example:
        >>> lexicon = Lexicon("en", (WordGroup("synonyms", "big / large", ("big", "large")),))
        >>> lexicon.words
        ('big', 'large')
    """

    language: str
    groups: tuple[WordGroup, ...]
    templates: tuple[str, ...] = ()
    origin: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """Every word once, in the order of the groups."""
        return tuple(dict.fromkeys(word for group in self.groups for word in group.words))

    def of(self, relation: str) -> Sequence[WordGroup]:
        """Return the groups of one relation."""
        return [group for group in self.groups if group.relation == relation]

    def fingerprint(self) -> str:
        """Return 16 hex digits that change with its groups and templates."""
        parts = [self.language, *self.templates]
        parts += ["\t".join((group.relation, group.name, *group.words)) for group in self.groups]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
