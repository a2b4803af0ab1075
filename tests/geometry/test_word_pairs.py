"""AUC of related pairs: known answers, and what chance comes to."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from sklearn.metrics import roc_auc_score

from embedwatch.geometry.cohesion import remove_mean, remove_top
from embedwatch.geometry.word_pairs import group_pairs, pair_sets

GROUPS = {"synonyms": [[0, 5], [7, 2], [3, 9]], "topics": [[0, 1, 2, 3], [10, 11, 12], [4, 13]]}
LEFT_OUT = torch.tensor([[20, 14], [1, 15], [0, 5]])


def rows(number: int = 24, dimension: int = 6, seed: int = 0) -> torch.Tensor:
    made = torch.randn(number, dimension, generator=torch.Generator().manual_seed(seed))
    return made / made.norm(dim=1, keepdim=True)


def test_auc_is_that_of_scikit_learn() -> None:
    unit = rows()
    found = pair_sets(24, GROUPS, LEFT_OUT).contrast(unit)
    related = {tuple(sorted(pair)) for groups in GROUPS.values() for group in groups for pair in combinations(group, 2)}
    left_out = {tuple(sorted(pair)) for pair in LEFT_OUT.tolist()}
    cosines = unit @ unit.T
    random = [
        float(cosines[pair]) for pair in combinations(range(24), 2) if pair not in related and pair not in left_out
    ]
    for relation, groups in GROUPS.items():
        for group, auc in zip(groups, found.auc[relation].tolist(), strict=True):
            inside = [float(cosines[pair]) for pair in combinations(group, 2)]
            expected = roc_auc_score([1] * len(inside) + [0] * len(random), inside + random)
            assert auc == pytest.approx(expected, abs=1e-9)
    assert found.random == pytest.approx(sum(random) / len(random), abs=1e-6)
    assert found.spread == pytest.approx(float(torch.tensor(random).std(correction=0)), abs=1e-6)


def test_rows_that_are_all_alike_are_chance() -> None:
    found = pair_sets(24, GROUPS).contrast(torch.ones(24, 4) / 2)
    assert all(auc == 0.5 for relation in GROUPS for auc in found.auc[relation].tolist())
    assert found.spread == pytest.approx(0, abs=1e-6)


def test_chance_does_not_know_which_word_a_row_is_of() -> None:
    unit = rows(60, 8)
    unit[:10] = unit[0]  # ten equal rows, which are no group
    sets = pair_sets(60, {"topics": [list(range(start, start + 6)) for start in range(0, 60, 6)]})
    dealt = sets.chance(unit, permutations=200, seed=1).auc["topics"]
    assert dealt.shape == (200, 10)
    assert float(dealt.mean()) == pytest.approx(0.5, abs=0.02)
    assert torch.equal(dealt, sets.chance(unit, permutations=200, seed=1).auc["topics"])


def test_one_permutation_is_the_plain_formula() -> None:
    unit = rows()
    sets = pair_sets(24, GROUPS, LEFT_OUT)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(5))
    dealt = sets.chance(unit, permutations=1, seed=5)
    plain = sets.contrast(unit[order])
    for relation in GROUPS:
        assert torch.allclose(dealt.auc[relation][0], plain.auc[relation], atol=1e-9)


def test_without_random_pairs_there_is_no_value() -> None:
    found = pair_sets(3, {"topics": [[0, 1, 2]]}).contrast(rows(3))
    assert (found.random, found.spread) == (None, None)
    assert found.auc["topics"].isnan().all()


def test_pairs_inside_groups() -> None:
    pairs = group_pairs([[4, 1], [2, 0, 3]])
    assert list(zip(pairs.left.tolist(), pairs.right.tolist(), pairs.group.tolist(), strict=True)) == [
        (1, 4, 0),
        (0, 2, 1),
        (2, 3, 1),
        (0, 3, 1),
    ]
    assert pairs.means(torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [1.0, 3.0]
    assert group_pairs([]).left.shape == (0,)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_the_widest_directions_go(shape: tuple[int, int]) -> None:
    unit = rows(*shape) + 0.3
    unit = unit / unit.norm(dim=1, keepdim=True)
    found, kept = remove_top(unit, 3)
    assert bool(kept.all())
    rest = (unit - unit.mean(0)).double()
    widest = torch.linalg.svd(rest, full_matrices=False).Vh[:3]
    rest = rest - rest @ widest.T @ widest
    assert torch.allclose(found.double(), rest / rest.norm(dim=1, keepdim=True), atol=1e-5)
    assert torch.allclose(remove_top(unit, 0)[0], remove_mean(unit)[0], atol=1e-6)
