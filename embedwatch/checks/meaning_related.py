"""Words that belong together must lie closer than others."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

AUC, CHANCE = "word_related_auc", "word_related_auc_chance"
FEW = 0.65
"""Where chance reaches so far, there are too few words to tell a space with meaning from one without."""
KINDS = {
    "table": "rows of the token table",
    "pieces": "means of their tokens' rows",
    "texts": "texts of their own",
    "context": "tokens in a sentence",
    "rows": "rows",
}


class MeaningRelated(Check):
    """Synonyms and words of one topic are closer than words that share no group.

    Judged is the AUC with the common mean removed, mean of synonyms and topics, beside the same vectors dealt to words
    at random; never a raw cosine. Healthy spaces have 0.93 to 0.98: word2vec, and tables, texts and contexts of
    MiniLM, multilingual-e5-small and SmolLM2. New tables and shuffled rows have 0.48 to 0.53. Half of the rows dealt
    to other words leave about 0.6. Of several lexicons and sorts of vectors the worst counts.
    """

    name = "meaning_related"
    title = "words that belong together"
    reads = (AUC,)
    weighs = (CHANCE,)
    roles = ("meaning",)
    limit = Limit(warn=0.75, fail=0.55, side="below")
    exhibits = ("loose_word_groups",)
    meaning = "Words that mean alike, or belong to one topic, are hardly closer to each other than words that do not."
    impact = (
        "Similarity says nothing about meaning here: search, clustering and whatever builds on these vectors is near "
        "chance."
    )
    diagnosis = (
        "Is the model freshly initialised, or were weights lost while it was loaded? Do rows and words still belong "
        "together, or is the tokenizer another model's? The loosest groups stand in the exhibit; if all are loose, "
        "rows were shuffled or never trained, if only some are, look at which words they share."
    )
    mitigation = (
        "Load trained weights and their own tokenizer; restore the order of the rows. In training, go on: groups draw "
        "together with the loss; if they do not, check that the embedding table gets gradients."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the smallest AUC, with where it was found and what chance comes to."""
        del reference, history
        rows = snapshot.provenance.rows
        found = [(each.number, each) for each in snapshot if each.name == AUC and each.number is not None]
        sure = [pair for pair in found if (_chance(snapshot, pair[1]) or 1.0) < FEW]
        if not sure:
            why = "Too few known words to tell meaning from chance." if found else "Not enough known words for a value."
            return Evidence(None, self.limit, rows, why, AUC)
        value, worst = min(sure, key=lambda pair: pair[0])
        return Evidence(value, self.limit, rows, _reason(snapshot, value, worst), AUC, exhibits=self.exhibits)


def _chance(snapshot: Snapshot, measurement: Measurement) -> float | None:
    return snapshot.number(CHANCE, **measurement.labels)


def _reason(snapshot: Snapshot, value: float, worst: Measurement) -> str:
    labels = worst.labels
    kind = KINDS.get(labels["vectors"], labels["vectors"])
    words = f"Related words of “{labels['lexicon']}”, as {kind}, are closer than others in {value:.1%} of the cases"
    chance = _chance(snapshot, worst)
    words += f" (chance: up to {chance:.1%})" if chance is not None else ""
    cosines = [
        f"{relation} {number:.3f}"
        for relation in ("synonyms", "contrasts", "topics", "random")
        if (number := snapshot.number("word_cosine", relation=relation, removed="mean", **labels)) is not None
    ]
    return words + (f"; with the mean removed, cosines are {', '.join(cosines)}." if cosines else ".")
