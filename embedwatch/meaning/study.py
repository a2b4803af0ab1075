"""Study: the groups of one lexicon in the vectors of one space, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from embedwatch.geometry.cohesion import group_cosines, group_sums, remove_mean, remove_top, silhouette
from embedwatch.geometry.word_pairs import Contrast, pair_sets
from embedwatch.lexicons.lexicon import RELATIONS, Lexicon, WordGroup
from embedwatch.loading.word_vectors import WordVectors

__all__ = ["JUDGED", "REMOVED", "FoundGroup", "Study", "View", "study_words"]

REMOVED = ("nothing", "mean", "top")
"""What is taken out of all vectors before they are compared: nothing, their mean, or the widest directions as well."""
JUDGED = ("synonyms", "topics")
"""Relations whose words a space should hold together. Contrasts are free: some spaces part them on purpose."""
PERMUTATIONS = 299
SURE = 0.99
"""Chance is the value that so many spaces without meaning stay below."""
LOOSE = 0.95
"""A topic is loose where so many of the same topics over dealt rows are as close, or fewer."""
TOP_SHARE = 100
"""One direction is removed for so many dimensions (Mu & Viswanath 2018, section 2.3)."""
CLASSIC = {"synonyms": 0.6, "contrasts": 0.1}
"""Limits that are often told: synonyms above, contrasts below. Healthy models keep neither."""


@dataclass(frozen=True)
class FoundGroup:
    """A group with those of its words that the space has.

    Args:
        group: as the lexicon has it.
        rows: numbers of the rows of its words, two or more.
    """

    group: WordGroup
    rows: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """The same groups after something common was taken out.

    Args:
        cosine: mean cosine inside the groups of each relation, each group with the same weight.
        random: mean cosine of words that share no group.
        spread: standard deviation of these.
        auc: for each relation the probability that words of one group are closer than words that share none.
        groups: of each relation, cosine and AUC of each group.
    """

    cosine: Mapping[str, float]
    random: float | None
    spread: float | None
    auc: Mapping[str, float]
    groups: Mapping[str, tuple[Tensor, Tensor]]

    @property
    def related(self) -> float | None:
        """Mean AUC of the relations that are judged; `None` where there is none."""
        known = [self.auc[relation] for relation in JUDGED if relation in self.auc]
        return sum(known) / len(known) if known else None

    def margin(self, relation: str) -> float | None:
        """Return the mean cosine inside groups less that of random pairs."""
        inside = self.cosine.get(relation)
        return None if inside is None or self.random is None else inside - self.random

    def gap(self, relation: str) -> float | None:
        """Return the margin in standard deviations of random pairs (Glass 1976)."""
        margin = self.margin(relation)
        return None if margin is None or not self.spread else margin / self.spread


@dataclass(frozen=True)
class Study:
    """What a space makes of a lexicon.

    Args:
        lexicon: the groups.
        words: (N,) that were found.
        unit: (N, D) their directions with the mean removed.
        found: groups of each relation.
        views: by what was removed.
        chance: AUC of related words that 99 % of spaces without meaning stay below.
        p_value: share of spaces without meaning that are as good, at least one of all that were tried.
        loose: whether each topic is no closer than chance.
        silhouette: of words that are of one topic only, the mean removed.
        classic: share of pairs of synonyms and contrasts that keep the limits that are often told.
    """

    lexicon: Lexicon
    words: tuple[str, ...]
    unit: Tensor
    found: Mapping[str, Sequence[FoundGroup]]
    views: Mapping[str, View]
    chance: float | None
    p_value: float | None
    loose: Tensor
    silhouette: float | None
    classic: Mapping[str, float]

    @property
    def groups(self) -> int:
        """Number of groups that were found."""
        return sum(map(len, self.found.values()))

    def matrix(self) -> tuple[list[str], Tensor]:
        """Return the names of topics, and the mean cosine between their words, the mean removed. Shape: (G, G)."""
        topics = self.found["topics"]
        counts, sums = self._sums("topics")
        sizes = counts.double()
        between = (sums @ sums.T) / (sizes[:, None] * sizes[None, :])
        between.fill_diagonal_(0.0)
        return [topic.group.name for topic in topics], between + torch.diag(group_cosines(counts, sums).by_group)

    def weakest(self, found: FoundGroup) -> str:
        """Return the word of a group that is farthest from the others."""
        rows = self.unit[list(found.rows)]
        cosines = rows @ rows.sum(0) - (rows * rows).sum(1)
        return self.words[found.rows[int(cosines.argmin())]]

    def _sums(self, relation: str) -> tuple[Tensor, Tensor]:
        return _group_sums(self.unit, self.found[relation])


def study_words(
    lexicon: Lexicon, found: WordVectors, *, permutations: int = PERMUTATIONS, seed: int = 0
) -> Study | None:
    """Return what a space makes of a lexicon; `None` where it has no group of two words.

    Two words that share a token are no pair, neither a related nor a random one: they would be alike in a model that
    learned nothing. Of a group whose words share tokens the first stands for the others.

    Args:
        lexicon: the groups.
        found: words with their vectors; rows with NaN, Inf or zeros alone are left out.
        permutations: how often rows are dealt to words at random.
        seed: of these.
    """
    rows = found.vectors.detach().float().cpu()
    norms = rows.norm(dim=1)
    good = norms.isfinite() & (norms > 0)
    unit = rows[good] / norms[good, None]  # (N, D)
    kept = good.nonzero()[:, 0].tolist()
    words = tuple(found.words[row] for row in kept)
    tokens = [found.tokens[row] if found.tokens else () for row in kept]
    groups = _found_groups(lexicon, words, tokens)
    if not any(groups.values()):
        return None
    related = {relation: [group.rows for group in groups[relation]] for relation in RELATIONS if groups[relation]}
    sets = pair_sets(len(unit), related, _sharing(tokens))
    directions = max(1, round(unit.shape[1] / TOP_SHARE))
    removed = {
        "nothing": unit,
        "mean": _whole(unit, *remove_mean(unit)),
        "top": _whole(unit, *remove_top(unit, directions)),
    }
    views = {name: _view(space, groups, sets.contrast(space)) for name, space in removed.items()}
    centred = removed["mean"]
    dealt = sets.chance(centred, permutations=permutations, seed=seed).auc
    chance, p_value = _chance(dealt, views["mean"].related)
    topics = views["mean"].groups["topics"][1] if groups["topics"] else torch.zeros(0)
    return Study(
        lexicon,
        words,
        centred,
        groups,
        views,
        chance=chance,
        p_value=p_value,
        loose=topics <= dealt["topics"].quantile(LOOSE, dim=0)
        if groups["topics"]
        else torch.zeros(0, dtype=torch.bool),
        silhouette=_silhouette(centred, groups["topics"]),
        classic=_classic(unit, groups),
    )


def _chance(dealt: Mapping[str, Tensor], value: float | None) -> tuple[float | None, float | None]:
    """Return what most spaces without meaning stay below, and the share of them that do as well as this value."""
    means = [dealt[relation].mean(1) for relation in JUDGED if relation in dealt]
    if not means or value is None:
        return None, None
    null = torch.stack(means).mean(0)
    if not bool(null.isfinite().all()):
        return None, None
    return float(null.quantile(SURE)), (1 + int((null >= value).sum())) / (1 + len(null))


def _view(unit: Tensor, groups: Mapping[str, Sequence[FoundGroup]], contrast: Contrast) -> View:
    cosines, aucs, each = {}, {}, {}
    for relation, auc in contrast.auc.items():
        inside = group_cosines(*_group_sums(unit, groups[relation]))
        if inside.inside is not None:
            cosines[relation] = inside.inside
        if bool(auc.isfinite().all()):
            aucs[relation] = float(auc.mean())
        each[relation] = inside.by_group, auc
    return View(cosines, contrast.random, contrast.spread, aucs, each)


def _group_sums(unit: Tensor, groups: Sequence[FoundGroup]) -> tuple[Tensor, Tensor]:
    """Return number and sum of the rows of each group that have a direction; a row may be of several."""
    alive = unit.any(1).tolist()
    groups = [FoundGroup(found.group, tuple(row for row in found.rows if alive[row])) for found in groups]
    rows = torch.tensor([row for group in groups for row in group.rows], dtype=torch.int64)
    labels = torch.tensor([number for number, group in enumerate(groups) for _ in group.rows], dtype=torch.int64)
    return group_sums(unit[rows], labels, len(groups))


def _found_groups(
    lexicon: Lexicon, words: Sequence[str], tokens: Sequence[tuple[int, ...]]
) -> dict[str, list[FoundGroup]]:
    place = {word: row for row, word in enumerate(words)}
    found: dict[str, list[FoundGroup]] = {relation: [] for relation in RELATIONS}
    for group in lexicon.groups:
        rows: list[int] = []
        used: set[int] = set()
        for word in group.words:
            row = place.get(word)
            if row is not None and not used.intersection(tokens[row]):
                rows.append(row)
                used.update(tokens[row])
        if len(rows) > 1:
            found[group.relation].append(FoundGroup(group, tuple(rows)))
    return found


def _sharing(tokens: Sequence[tuple[int, ...]]) -> Tensor:
    """Return the pairs of words that share a token. Shape: (K, 2)."""
    holders: dict[int, list[int]] = {}
    for row, ids in enumerate(tokens):
        for token in set(ids):
            holders.setdefault(token, []).append(row)
    pairs = {pair for rows in holders.values() for pair in combinations(rows, 2)}
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)


def _whole(unit: Tensor, rest: Tensor, kept: Tensor) -> Tensor:
    """Return as many rows as there were: one that was the mean has no direction, and is zero."""
    return torch.zeros_like(unit).index_copy_(0, kept.nonzero()[:, 0], rest)


def _silhouette(unit: Tensor, topics: Sequence[FoundGroup]) -> float | None:
    labels: dict[int, list[int]] = {}
    for number, topic in enumerate(topics):
        for row in topic.rows:
            labels.setdefault(row, []).append(number)
    single = {row: numbers[0] for row, numbers in labels.items() if len(numbers) == 1}
    rows = [row for row in single if bool(unit[row].any())]
    return silhouette(unit[rows], torch.tensor([single[row] for row in rows]))


def _classic(unit: Tensor, groups: Mapping[str, Sequence[FoundGroup]]) -> dict[str, float]:
    shares = {}
    for relation, limit in CLASSIC.items():
        pairs = [pair for group in groups[relation] for pair in combinations(group.rows, 2)]
        if pairs:
            left, right = torch.tensor(pairs).T
            cosines = (unit[left] * unit[right]).sum(1)
            keeps = cosines > limit if relation == "synonyms" else cosines < limit
            shares[relation] = float(keeps.double().mean())
    return shares
