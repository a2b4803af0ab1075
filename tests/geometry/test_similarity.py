"""Numbers about two spaces beside independent formulas, in plain numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from embedwatch.geometry.alignment import PairMoments
from embedwatch.geometry.pairs import debiased_cka, neighbour_overlap, unit
from embedwatch.geometry.recall_curve import foretell, gallery_sizes, recall_curve, unit_centred_rotation
from embedwatch.geometry.similarity import (
    cka_of_moments,
    cross_overlap,
    held_out_cca,
    mutual_knn,
    own_places,
    rank_agreement,
    towers,
)
from embedwatch.testing.spaces import two_spaces

K = 10


@pytest.fixture(scope="module")
def spaces() -> tuple[Tensor, Tensor]:
    left, right = two_spaces(400)
    return unit(torch.from_numpy(left)), unit(torch.from_numpy(right))


def _hsic_unbiased(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741  # as in the paper
    m = len(k)
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    ones = np.ones(m)
    inner = np.trace(k @ l) + (ones @ k @ ones) * (ones @ l @ ones) / ((m - 1) * (m - 2))
    return float((inner - 2 / (m - 2) * ones @ k @ l @ ones) / (m * (m - 3)))


def test_cka_from_moments_is_that_of_all_pairs(spaces: tuple[Tensor, Tensor]) -> None:
    k, l = (rows.numpy() @ rows.numpy().T for rows in spaces)  # noqa: E741
    wanted = _hsic_unbiased(k, l) / np.sqrt(_hsic_unbiased(k, k) * _hsic_unbiased(l, l))
    assert cka_of_moments(PairMoments.of(*spaces)) == pytest.approx(wanted, abs=1e-9)
    assert debiased_cka(*spaces) == pytest.approx(wanted, abs=1e-9)


def test_cka_of_few_and_of_equal_rows_is_unknown() -> None:
    rows = unit(torch.ones(20, 3))
    assert cka_of_moments(PairMoments.of(rows, rows)) is None
    assert cka_of_moments(PairMoments.of(rows[:3], rows[:3])) is None


def _nearest(queries: np.ndarray, gallery: np.ndarray, k: int) -> list[set[int]]:
    cosines = queries @ gallery.T
    np.fill_diagonal(cosines, -np.inf)
    return [set(np.argsort(-row)[:k].tolist()) for row in cosines]


def test_mutual_neighbours_by_loops(spaces: tuple[Tensor, Tensor]) -> None:
    left, right = (rows.numpy() for rows in spaces)
    both = zip(_nearest(left, left, K), _nearest(right, right, K), strict=True)
    found = mutual_knn(*spaces, K)
    assert found is not None
    assert found.share == pytest.approx(np.mean([len(a & b) / K for a, b in both]), abs=1e-9)
    other = neighbour_overlap(*spaces, K)
    assert other is not None
    assert (found.share, found.null) == pytest.approx((other.share, other.chance), abs=1e-9)
    assert found.p_value == 0.01
    assert found.null < found.limit < 2 * found.null


def test_shuffled_neighbours_lie_within_the_null(spaces: tuple[Tensor, Tensor]) -> None:
    left, right = spaces
    values = []
    for seed in range(20):
        order = torch.randperm(len(right), generator=torch.Generator().manual_seed(seed))
        found = mutual_knn(left, right[order], K, seed=seed)
        assert found is not None
        values.append(found.p_value)
        assert found.calibrated < 0.02
    assert 0.25 < np.mean(values) < 0.75  # uniform where nothing is there


def test_overlap_and_places_by_loops() -> None:
    left, _ = two_spaces(150, mean=0.2)
    moved = left + 0.1 * np.random.default_rng(0).standard_normal(left.shape).astype("float32")
    u, v = (unit(torch.from_numpy(rows)) for rows in (left, moved))
    wanted = [
        len(a & b) / K
        for a, b in zip(_nearest(u.numpy(), v.numpy(), K), _nearest(v.numpy(), v.numpy(), K), strict=True)
    ]
    assert cross_overlap(u, v, K).tolist() == pytest.approx(wanted)
    cosines = (u @ v.T).numpy()
    assert own_places(u, v).tolist() == [int((row > row[i]).sum()) for i, row in enumerate(cosines)]


def test_a_gallery_that_is_all_alike_finds_nothing() -> None:
    queries, gallery = torch.eye(64, dtype=torch.float64), unit(torch.ones(64, 64))
    assert float((own_places(queries, gallery) < K).double().mean()) == 0


def test_rank_agreement_is_spearmans(spaces: tuple[Tensor, Tensor]) -> None:
    above = np.triu_indices(len(spaces[0]), 1)
    cosines = [(rows.numpy() @ rows.numpy().T)[above] for rows in spaces]
    assert rank_agreement(*spaces) == pytest.approx(spearmanr(*cosines).statistic, abs=1e-9)


def _cca(left: np.ndarray, right: np.ndarray, directions: int) -> float:
    """Held-out CCA by QR decompositions of principal components, as Björck & Golub 1973 have it."""
    sides = []
    for rows in (left, right):
        fit = rows[::2]
        mean = fit.mean(0)
        values, vectors = np.linalg.eigh((fit - mean).T @ (fit - mean))
        order = np.argsort(-values)
        share = np.cumsum(values[order]) / values.sum()
        kept = min(int((share < 0.99).sum()) + 1, len(fit) // 3)
        parts = (rows - mean) @ vectors[:, order[:kept]]
        q, r = np.linalg.qr(parts[::2])
        sides.append((q, parts[1::2] @ np.linalg.inv(r)))
    u, _, vh = np.linalg.svd(sides[0][0].T @ sides[1][0])
    a, b = sides[0][1] @ u[:, :directions], sides[1][1] @ vh.T[:, :directions]
    return float(np.mean([np.corrcoef(a[:, i], b[:, i])[0, 1] for i in range(min(a.shape[1], b.shape[1]))]))


def test_canonical_correlations_of_other_rows(spaces: tuple[Tensor, Tensor]) -> None:
    left, right = spaces
    wanted = _cca(left.numpy(), right.numpy(), 16)
    assert held_out_cca(left, right, directions=16) == pytest.approx(wanted, abs=1e-5)
    random = torch.randn(len(left), 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert abs(held_out_cca(left, unit(random), directions=16) or 1) < 0.1  # in sample it would be 0.7


def test_towers_have_the_papers_numbers() -> None:
    rng = np.random.default_rng(0)
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in rng.standard_normal((2, 50, 5)) + 0.5)
    found = towers(torch.from_numpy(x), torch.from_numpy(y))
    apart = np.linalg.norm(x[:, None] - x[None], axis=2)[np.triu_indices(50, 1)]
    assert found.gap == pytest.approx(np.linalg.norm(x.mean(0) - y.mean(0)), abs=1e-9)
    assert found.alignment == pytest.approx((np.linalg.norm(x - y, axis=1) ** 2).mean(), abs=1e-9)
    assert found.uniformity_left == pytest.approx(np.log(np.exp(-2 * apart**2).mean()), abs=1e-9)


def test_a_curve_of_the_space_itself_is_whole_and_of_strangers_is_chance() -> None:
    rows = unit(torch.randn(500, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert gallery_sizes(500) == [62, 125, 250, 500]
    assert all((point.own, point.best) == (1, 1) for point in recall_curve(rows, rows, K))
    last = recall_curve(rows.flip(0), rows, K)[-1]
    assert last.own < 3 * K / 500
    assert last.queries == last.gallery == 500


def test_what_is_derived_is_near_what_a_larger_gallery_gives() -> None:
    left, right = (unit(torch.from_numpy(rows)) for rows in two_spaces(4_000))
    mapped = unit_centred_rotation(left[::2], right[::2], left[1::2])
    points = recall_curve(mapped, right[1::2], K)
    few = [point for point in points if point.gallery <= 500]
    found = foretell([p.gallery for p in few], [p.best for p in few], [p.queries for p in few], 2_000)
    assert found is not None
    assert found.derived
    assert found.low < points[-1].best < found.high
    assert found.high - found.low < 0.15
    known = foretell([p.gallery for p in points], [p.best for p in points], [p.queries for p in points], 2_000)
    assert known is not None
    assert known.share == points[-1].best
    assert not known.derived


def test_too_few_points_tell_nothing_of_another_size() -> None:
    assert foretell([100, 200], [0.9, 0.8], [200, 200], 400) is None
