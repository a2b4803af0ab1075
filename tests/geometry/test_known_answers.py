"""Known answers of the pure functions: papers, limits and closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from embedwatch.geometry.cohesion import group_cosines, group_sums, remove_mean
from embedwatch.geometry.isotropy import cosine_shares, mean_cosine, median_spread, uniformity
from embedwatch.geometry.kernels import gaussian_frequencies, random_features
from embedwatch.geometry.neighbours import dimension_mle, dimension_two_nn, occurrences, robin_hood, skewness
from embedwatch.geometry.norms import row_norms
from embedwatch.geometry.spectrum import (
    condition_number,
    effective_rank,
    eigenvalues,
    isoscore_star,
    null_share,
    participation_ratio,
    spectra,
)


@pytest.mark.parametrize("active", [1, 3, 8])
def test_equal_variances_in_some_directions(active: int) -> None:
    values = torch.tensor([2.0] * active + [0.0] * (8 - active))
    assert effective_rank(values) == pytest.approx(active)
    assert participation_ratio(values) == pytest.approx(active)
    assert condition_number(values) == pytest.approx(1.0)
    assert null_share(values) == pytest.approx(1 - active / 8)


def test_isoscore_counts_the_share_of_directions_used() -> None:
    """Rudman et al. 2022, section 4: with k of D directions used alike the score is (k - 1) / (D - 1)."""
    for active in (1, 2, 5, 10):
        values = torch.tensor([1.0] * active + [0.0] * (10 - active))
        assert isoscore_star(values) == pytest.approx((active - 1) / 9, abs=1e-9)


def test_isoscore_ignores_scale_and_is_raised_by_shrinkage() -> None:
    values = torch.tensor([5.0, 2.0, 1.0, 0.1])
    assert isoscore_star(values) == pytest.approx(isoscore_star(100 * values))
    shrunk = isoscore_star(values, shrinkage=0.5)
    plain = isoscore_star(values)
    assert shrunk is not None
    assert plain is not None
    assert plain < shrunk < isoscore_star(values, shrinkage=1.0) == pytest.approx(1.0)


def test_nothing_is_none() -> None:
    zero = torch.zeros(4)
    for measure in (effective_rank, participation_ratio, isoscore_star, null_share, condition_number):
        assert measure(zero) is None
    assert isoscore_star(torch.ones(1)) is None


def test_standardised_eigenvalues_do_not_depend_on_scales() -> None:
    """Two variables of correlation r: 1 + r and 1 - r, whatever their variances."""
    scale = torch.tensor([1.0, 1e4])
    covariance = torch.tensor([[1.0, 0.6], [0.6, 1.0]]) * scale[:, None] * scale
    assert spectra(covariance).standardised.tolist() == pytest.approx([1.6, 0.4])
    assert eigenvalues(covariance)[0] == pytest.approx(1e8, rel=1e-3)


def test_a_dimension_below_the_floor_of_rounding_is_none() -> None:
    covariance = torch.diag(torch.tensor([1.0, 1.0, 1e-20], dtype=torch.float64))
    assert spectra(covariance, floor=torch.tensor([0.0, 0.0, 1e-14])).standardised.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("common", [0.0, 1.0, 3.0, 30.0])
def test_median_spread_of_rows_with_a_common_part(common: float) -> None:
    """A common part of k times the spread leaves 1 / (1 + k²) of the mean square."""
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]).repeat(500, 16)
    rows = common + signs
    assert median_spread(rows.sum(0), rows.square().sum(0), len(rows)) == pytest.approx(1 / (1 + common**2), abs=1e-3)


def test_median_spread_of_nothing_and_of_dimensions_that_are_zero() -> None:
    assert median_spread(torch.ones(2), torch.ones(2), 1) is None
    assert median_spread(torch.zeros(2), torch.zeros(2), 5) is None
    assert median_spread(torch.tensor([0.0, 0.0, 3.0]), torch.tensor([0.0, 0.0, 3.0]), 3) == 0.0


def test_noise_of_float32_is_no_direction() -> None:
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(4_000, 3, generator=generator) @ torch.randn(3, 60, generator=generator)
    found = eigenvalues((low.T @ low).double())
    assert int((found > 0).sum()) == 3


def test_mean_cosine_of_simple_sets() -> None:
    orthogonal = torch.eye(5)
    assert mean_cosine(orthogonal.sum(0), 5) == pytest.approx(0.0)
    assert mean_cosine(torch.tensor([5.0, 0.0]), 5) == pytest.approx(1.0)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert mean_cosine(opposite.sum(0), 2) == pytest.approx(-1.0)
    assert mean_cosine(torch.ones(2), 1) is None


def test_one_dimension_can_make_all_of_the_cosine() -> None:
    unit = torch.tensor([[0.6, 0.8], [0.6, -0.8]])
    shares = cosine_shares(unit.sum(0), unit.square().sum(0), 2)
    assert shares is not None
    torch.testing.assert_close(shares, torch.tensor([0.64, 0.36], dtype=torch.float64))


def test_uniformity_of_two_points_and_of_a_sphere() -> None:
    """Two opposite points are 4 apart squared: log exp(-8). On a high sphere ‖u - v‖² is near 2: about -4."""
    assert uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-8.0)
    sphere = torch.nn.functional.normalize(torch.randn(800, 512, generator=torch.Generator().manual_seed(0)), dim=1)
    assert uniformity(sphere) == pytest.approx(-4.0, abs=0.05)


def test_random_features_give_the_gaussian_kernel() -> None:
    frequencies = gaussian_frequencies(16, 4_096, precision=2.0, seed=0)
    x, y = torch.nn.functional.normalize(torch.randn(2, 16, generator=torch.Generator().manual_seed(1)), dim=1)
    (cos_x, sin_x), (cos_y, sin_y) = (random_features(row[None], frequencies) for row in (x, y))
    estimate = float((cos_x * cos_y + sin_x * sin_y).mean())
    assert estimate == pytest.approx(math.exp(-2 * float((x - y).square().sum())), abs=0.03)
    assert torch.equal(frequencies, gaussian_frequencies(16, 4_096, precision=2.0, seed=0))


def test_frequencies_are_orthogonal_in_blocks() -> None:
    block = torch.nn.functional.normalize(gaussian_frequencies(8, 8, precision=1.0, seed=0), dim=0)
    torch.testing.assert_close(block.T @ block, torch.eye(8), atol=1e-5, rtol=0)


def test_hubness_of_a_star_and_of_a_ring() -> None:
    star = torch.tensor([[1], [0], [0], [0], [0]])  # all point to row 0, row 0 to row 1
    counts = occurrences(star, 5)
    assert counts.tolist() == [4, 1, 0, 0, 0]
    assert robin_hood(counts) == pytest.approx(0.6)
    assert skewness(counts) == pytest.approx(4.8 / 2.4**1.5)
    ring = occurrences((torch.arange(5)[:, None] + 1) % 5, 5)
    assert robin_hood(ring) == 0.0
    assert skewness(ring) is None


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_intrinsic_dimension_of_a_cube(dimension: int) -> None:
    points = torch.rand(2_000, dimension, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    every = (points[:, None] - points[None]).norm(dim=2).fill_diagonal_(torch.inf)
    distances = every.sort(dim=1).values[:, :20]
    assert dimension_mle(distances) == pytest.approx(dimension, rel=0.15)
    assert dimension_two_nn(distances) == pytest.approx(dimension, rel=0.15)


def test_groups_by_hand() -> None:
    unit = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = group_cosines(*group_sums(unit, torch.tensor([0, 1, 1]), 2))
    assert found.inside == pytest.approx(1.0)  # group 0 has one row and no pair
    assert found.between == pytest.approx(0.0)
    assert found.margin == pytest.approx(1.0)
    assert math.isnan(found.by_group[0])


def test_removing_the_mean_drops_rows_that_were_it() -> None:
    rows, kept = remove_mean(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert rows.shape == (0, 2)
    assert kept.tolist() == [False, False]


def test_norms_of_extreme_rows() -> None:
    rows = torch.tensor([[3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0], [math.inf, 1.0], [math.nan, 1.0]])
    found = row_norms(rows)
    torch.testing.assert_close(found[:3], torch.tensor([5e30, 5e-30, 0.0], dtype=torch.float64), rtol=1e-6, atol=0)
    assert not torch.isfinite(found[3:]).any()
    half = torch.full((1, 4), 60_000.0, dtype=torch.float16)
    assert float(row_norms(half)) == pytest.approx(120_000.0)


def test_one_huge_column_does_not_empty_the_others() -> None:
    """A row number stored as a dimension: rank 1 by variance, but no direction is empty."""
    rows = torch.randn(4_000, 20, generator=torch.Generator().manual_seed(0))
    rows[:, 3] = torch.arange(4_000.0)
    values = eigenvalues(torch.cov(rows.double().T).float())
    assert int((values > 0).sum()) == 20
