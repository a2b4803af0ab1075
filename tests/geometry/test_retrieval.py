"""Retrieval, beside plain numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embedwatch.geometry.retrieval import (
    csls_rerank,
    directions,
    find,
    hubness,
    mean_average_precision,
    nearest,
    overlap,
    recall_at,
    reciprocal_rank_fusion,
)

Floats = npt.NDArray[np.float64]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit(rows: Tensor) -> Floats:
    wide: Floats = rows.numpy()
    found: Floats = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return found


def test_ranks_are_those_of_sorting_all_cosines() -> None:
    queries, gallery = draw(700, 6), draw(90, 6, seed=1)  # more queries than are compared at a time
    targets = torch.arange(700) % 90
    scores = unit(queries) @ unit(gallery).T
    order = (-scores).argsort(1)
    wanted = [int(np.flatnonzero(row == target)[0]) + 1 for row, target in zip(order, targets.tolist(), strict=True)]
    found = find(queries, gallery, targets, 5)
    assert found.ranks.tolist() == wanted
    assert np.array_equal(found.nearest.numpy(), order[:, :5])
    assert recall_at(found.ranks, 3) == np.mean(np.array(wanted) <= 3)
    assert np.isclose(mean_average_precision(found.ranks), np.mean(1 / np.array(wanted)))


def test_directions_of_rows_whose_squares_leave_the_range() -> None:
    rows = draw(5, 4).float()
    rows[0] = 0
    wanted = directions(rows)
    for length in (1e30, 1e-30, 1e38, 1e-38):
        assert torch.allclose(directions(rows * length), wanted, atol=2e-5 if length == 1e-38 else 1e-6)
    odd = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [3.0, 4.0]])
    assert directions(odd).isfinite().all(1).tolist() == [False, False, True]


def test_half_of_those_that_tie_stand_before() -> None:
    """A map that sends everything to one point finds nothing, it does not find everything first."""
    gallery = torch.ones(11, 3)
    ranks = find(torch.ones(11, 3), gallery, torch.arange(11)).ranks
    assert ranks.tolist() == [6.0] * 11


def test_a_query_without_numbers_finds_nothing() -> None:
    found = find(torch.full((1, 3), torch.nan), torch.eye(3), torch.tensor([0]))
    assert found.ranks.tolist() == [3.0]


def test_no_queries() -> None:
    assert len(find(torch.zeros(0, 3), torch.eye(3), torch.zeros(0, dtype=torch.int64)).ranks) == 0


def test_csls_agrees_with_its_formula() -> None:
    queries, gallery, background = draw(40, 5), draw(60, 5, seed=1), draw(50, 5, seed=2)
    x, y, b = unit(queries), unit(gallery), unit(background)
    hubs = np.sort(y @ b.T, 1)[:, -10:].mean(1)
    others = np.sort(x @ y.T, 1)[:, -10:].mean(1)  # of the query: the same for all its candidates
    wanted = 2 * x @ y.T - others[:, None] - hubs[None, :]
    found = hubness(gallery, background, 10)
    assert np.abs(found.numpy() - hubs).max() < 1e-5
    targets = torch.arange(40)
    order = (-wanted).argsort(1)
    ranks = [int(np.flatnonzero(row == at)[0]) + 1 for at, row in enumerate(order)]
    assert find(queries, gallery, targets, less=found).ranks.tolist() == ranks
    candidates = nearest(queries, gallery, 60)
    scores, rows = csls_rerank((directions(queries) @ directions(gallery).T).gather(1, candidates), candidates, found)
    assert np.array_equal(rows.numpy(), order)
    assert np.abs(scores.numpy() - np.take_along_axis(wanted + others[:, None], order, 1)).max() < 1e-5


def test_nearest_leaves_itself_out() -> None:
    rows = draw(30, 4)
    found = nearest(rows, rows, 3, without=torch.arange(30))
    assert not bool((found == torch.arange(30)[:, None]).any())
    assert nearest(rows[:2], rows[:2], 10, without=torch.arange(2)).shape == (2, 1)


def test_overlap_counts_what_was_wanted() -> None:
    assert overlap(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 9], [3, 4]])).tolist() == [0.5, 1.0]


def test_fusion_agrees_with_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    lists = [torch.stack([torch.randperm(30, generator=generator)[:8] for _ in range(5)]) for _ in range(3)]
    lists[1][2, 5:] = -1  # fewer results
    fused = reciprocal_rank_fusion(lists, 12)
    for query in range(5):
        scores: dict[int, float] = {}
        for each in lists:
            for rank, found in enumerate(each[query].tolist(), 1):
                if found >= 0:
                    scores[found] = scores.get(found, 0.0) + 1 / (60 + rank)
        values = sorted(scores.values(), reverse=True)[:12]
        got = [each for each in fused[query].tolist() if each >= 0]
        assert np.allclose([scores[each] for each in got], values[: len(got)])
        assert len(got) == min(12, len(scores))
