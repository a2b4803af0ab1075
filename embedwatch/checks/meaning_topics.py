"""Each topic must hold together."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

LOOSE = "word_topics_loose_ratio"
CHANCE = "word_related_auc_chance"
FEW = 0.65
"""Where chance of related words reaches so far, there are too few words to tell."""


class MeaningTopics(Check):
    """Few topics of a lexicon are no closer than the same words at random.

    A topic is loose where its AUC, the common mean removed, is within what 95 % of the same topics reach over vectors
    that were dealt to words at random. Healthy spaces have 0 to 7 % loose topics, new tables 84 to 100 %. It sees what
    the mean over all words does not: a part of the rows that lost its words.
    """

    name = "meaning_topics"
    title = "topics that fall apart"
    reads = (LOOSE,)
    weighs = (CHANCE,)
    roles = ("meaning",)
    limit = Limit(warn=0.25)
    exhibits = ("loose_word_groups",)
    meaning = "Whole topics of words lie no closer than words at random, beside others that do."
    impact = "Search and clustering fail for these topics, while averages over all words look well."
    diagnosis = (
        "Look which topics are loose: of rare words, of words of one alphabet, of rows behind a certain number? Then a "
        "part of the table was not trained, or was shifted or overwritten."
    )
    mitigation = (
        "Restore the rows that lost their words, or train on text that holds them; for a model of one domain give word "
        "groups of that domain."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the largest share of loose topics, with where it was found."""
        del reference, history
        rows = snapshot.provenance.rows
        found = [
            (each.number, each)
            for each in snapshot
            if each.name == LOOSE and each.number is not None and (snapshot.number(CHANCE, **each.labels) or 1.0) < FEW
        ]
        if not found:
            return Evidence(None, self.limit, rows, "Too few known words to tell topics from chance.", LOOSE)
        value, worst = max(found, key=lambda pair: pair[0])
        where = f"{worst.labels['lexicon']}, {worst.labels['vectors']}"
        reason = f"{value:.0%} of the topics ({where}) are no closer than words at random."
        return Evidence(value, self.limit, rows, reason, LOOSE, exhibits=self.exhibits)
