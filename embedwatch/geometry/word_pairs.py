"""Pairs of rows that belong together beside all pairs that do not: how well the space tells them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Chance", "Contrast", "GroupPairs", "PairSets", "group_pairs", "pair_sets"]

TIE = 1e-6
"""Cosines in float32 are equal below this difference."""
TOGETHER = 32
"""Permutations that are worked out at once."""


class GroupPairs(NamedTuple):
    """All pairs inside some groups.

    Args:
        left: (P,) rows, each smaller than the one on its right.
        right: (P,) rows.
        group: (P,) which group the pair is of.
        groups: number of groups.
    """

    left: Tensor
    right: Tensor
    group: Tensor
    groups: int

    def means(self, values: Tensor) -> Tensor:
        """Return the mean value of the pairs of each group, NaN for a group without any. Shape: (…, P) -> (…, G)."""
        sums = torch.zeros(*values.shape[:-1], self.groups, dtype=torch.float64)
        return sums.index_add_(-1, self.group, values.double()) / torch.bincount(self.group, minlength=self.groups)


class Contrast(NamedTuple):
    """One sort of related pairs beside pairs that are not related.

    Args:
        auc: (G,) for each group the probability that one of its pairs is closer than a random one.
        random: mean cosine of pairs that are not related; `None` where there are none.
        spread: standard deviation of these.
    """

    auc: Mapping[str, Tensor]
    random: float | None
    spread: float | None


class Chance(NamedTuple):
    """What the same groups come to when rows are dealt to words at random.

    Args:
        auc: (G,) AUC of each group under each of P permutations, by relation; (P, G).
    """

    auc: Mapping[str, Tensor]


def group_pairs(groups: Sequence[Sequence[int]]) -> GroupPairs:
    """Return all pairs inside each group.

    Example:
        >>> group_pairs([[0, 2, 1], [3, 0]]).left.tolist()
        [0, 0, 1, 0]
    """
    pairs = [
        (min(first, second), max(first, second), number)
        for number, group in enumerate(groups)
        for place, first in enumerate(group)
        for second in group[place + 1 :]
    ]
    left, right, group = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 3).T
    return GroupPairs(left, right, group, len(groups))


class PairSets(NamedTuple):
    """Which pairs of n rows are related, and which are left out of the random ones; made by `pair_sets`.

    Args:
        rows: n.
        related: pairs of each relation.
        special: (S,) numbers `left n + right` of all pairs that are no random ones: related, or left out.
    """

    rows: int
    related: Mapping[str, GroupPairs]
    special: Tensor

    def contrast(self, unit: Tensor) -> Contrast:
        """Return how far related pairs stand out, by the cosines of unit rows.

        The AUC of a group is the mean over its pairs of the share of random pairs that are less close, ties counted by
        half (Mann & Whitney 1947). Random pairs are all pairs of rows that are neither related nor left out.

        Shape: (n, D).
        """
        cosines = (unit @ unit.T).float()  # (n, n)
        every = self._all(cosines)
        special = self._special(cosines)
        count = len(every) - len(special)
        if count < 1:
            return Contrast(self._auc(cosines, every, special), None, None)
        total = float(every.double().sum() - special.double().sum()) / count
        square = float(every.double().square().sum() - special.double().square().sum()) / count
        return Contrast(self._auc(cosines, every, special), total, max(0.0, square - total**2) ** 0.5)

    def chance(self, unit: Tensor, *, permutations: int, seed: int) -> Chance:
        """Return the same AUC where rows are dealt to words at random: what a space without meaning shows.

        The rows stay as they are, so that pairs that share a word, and directions that all rows share, count as they do
        in the space itself.

        Shape: (n, D) -> (permutations, G) for each relation.
        """
        cosines = (unit @ unit.T).float()
        every = self._all(cosines)
        generator = torch.Generator().manual_seed(seed)
        orders = torch.stack([torch.randperm(self.rows, generator=generator) for _ in range(permutations)])  # (P, n)
        found: dict[str, list[Tensor]] = {relation: [] for relation in self.related}
        for part in orders.split(TOGETHER):
            special = self._special(cosines, part)
            for relation, auc in self._auc(cosines, every, special, part).items():
                found[relation].append(auc)
        return Chance({relation: torch.cat(aucs) for relation, aucs in found.items()})

    def _all(self, cosines: Tensor) -> Tensor:
        left, right = torch.triu_indices(self.rows, self.rows, offset=1)
        return cosines[left, right].sort().values

    def _special(self, cosines: Tensor, order: Tensor | None = None) -> Tensor:
        left, right = self.special // self.rows, self.special % self.rows
        return _dealt(cosines, left, right, order).sort(dim=-1).values

    def _auc(self, cosines: Tensor, every: Tensor, special: Tensor, order: Tensor | None = None) -> dict[str, Tensor]:
        count = len(every) - special.shape[-1]
        found = {}
        for relation, pairs in self.related.items():
            values = _dealt(cosines, pairs.left, pairs.right, order)
            closer = _below(every, values) - _below(special, values)
            found[relation] = pairs.means(closer / count if count else torch.full_like(closer, torch.nan))
        return found


def pair_sets(rows: int, related: Mapping[str, Sequence[Sequence[int]]], left_out: Tensor | None = None) -> PairSets:
    """Return the pairs of some groups of rows, by relation.

    Args:
        rows: number of rows, 2 at least.
        related: for each relation its groups, as numbers of rows.
        left_out: (K, 2) pairs that are neither related nor random.
    """
    pairs = {relation: group_pairs(groups) for relation, groups in related.items()}
    numbers = [each.left * rows + each.right for each in pairs.values()]
    if left_out is not None and len(left_out):
        low, high = left_out.min(1).values, left_out.max(1).values
        numbers.append((low * rows + high)[low != high])
    special = torch.cat(numbers).unique() if numbers else torch.zeros(0, dtype=torch.int64)
    return PairSets(rows, pairs, special)


def _dealt(cosines: Tensor, left: Tensor, right: Tensor, order: Tensor | None) -> Tensor:
    """Return the cosines of some pairs, for each order of the rows. Shape: (n, n), (S,), (S,), (P, n) -> (P, S)."""
    return cosines[left, right] if order is None else cosines[order[:, left], order[:, right]]


def _below(ordered: Tensor, values: Tensor) -> Tensor:
    """Return how many of some ordered numbers lie below each value, equal ones counted by half."""
    values = values.contiguous()
    low = torch.searchsorted(ordered, values - TIE)
    high = torch.searchsorted(ordered, values + TIE, right=True)
    return (low + high).double() / 2
