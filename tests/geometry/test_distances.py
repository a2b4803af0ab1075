"""Distances of distributions agree with scipy and scikit-learn, and their noise with what healthy samples have."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial.distance
import scipy.stats
import sklearn.metrics
import torch
from torch import Tensor

from embedwatch.geometry.blocks import Blocks
from embedwatch.geometry.distributions import (
    jensen_shannon,
    jensen_shannon_noise,
    kolmogorov_smirnov,
    kolmogorov_smirnov_noise,
    stability_index,
    stability_index_noise,
    wasserstein,
    wasserstein_noise,
)
from embedwatch.geometry.frechet import Gaussian, frechet_bias, frechet_distance
from embedwatch.geometry.kernels import gaussian_frequencies
from embedwatch.geometry.mmd import discrepancy, discrepancy_noise, doubled_features
from embedwatch.geometry.units import FARTHEST, Units
from embedwatch.geometry.wishart import drawn_covariance

BLOCK = 10


def generated(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=generated(seed), dtype=torch.float64)


def counted(values: Tensor, edges: Tensor) -> Tensor:
    return torch.bincount(torch.bucketize(values, edges), minlength=len(edges) + 1)


def gaussian(rows: Tensor) -> Gaussian:
    return Gaussian(len(rows), rows.mean(0), torch.cov(rows.T))


class TestHistograms:
    @pytest.mark.parametrize("edges", [4, 32, 500])
    def test_kolmogorov_smirnov_understates_by_at_most_its_error(self, edges: int) -> None:
        one, two = normal(700, seed=0), 0.3 + 1.2 * normal(400, seed=1)
        exact = scipy.stats.ks_2samp(one.numpy(), two.numpy()).statistic
        at = torch.quantile(one, torch.linspace(0.01, 0.99, edges, dtype=torch.float64))
        found = kolmogorov_smirnov(counted(one, at), counted(two, at))
        assert found.value <= exact + 1e-12 <= found.value + found.error + 2e-12

    def test_jensen_shannon_is_that_of_scipy(self) -> None:
        one, two = torch.tensor([9, 0, 4, 7]), torch.tensor([1, 5, 0, 80])
        wanted = scipy.spatial.distance.jensenshannon(one.numpy(), two.numpy(), base=2)
        assert jensen_shannon(one, two) == pytest.approx(wanted, rel=1e-12)
        assert jensen_shannon(one, 3 * one) == pytest.approx(0, abs=1e-7)

    def test_stability_index_is_the_symmetric_divergence(self) -> None:
        one, two = torch.tensor([900, 100]), torch.tensor([500, 500])
        p, q = (np.array([each + 0.5 for each in side.tolist()]) / 1_001 for side in (one, two))
        wanted = scipy.stats.entropy(q, p) + scipy.stats.entropy(p, q)
        assert stability_index(one, two) == pytest.approx(wanted, rel=1e-12)

    def test_wasserstein_is_that_of_scipy(self) -> None:
        one, two = normal(2_000, seed=0), 0.5 + 0.7 * normal(1_500, seed=1)
        at = torch.quantile(one, torch.arange(1, 128, dtype=torch.float64) / 128)
        excess = [((at[0] - side).clamp(min=0).mean(), (side - at[-1]).clamp(min=0).mean()) for side in (one, two)]
        tails = [(b - a)[None] for a, b in zip(*excess, strict=True)]
        found = wasserstein(at[None], counted(one, at)[None], counted(two, at)[None], tails[0], tails[1])
        assert float(found) == pytest.approx(scipy.stats.wasserstein_distance(one.numpy(), two.numpy()), rel=0.01)

    def test_a_shift_moves_all_mass_by_itself_beyond_the_edges_too(self) -> None:
        one = normal(1_000, seed=0)
        at = torch.quantile(one, torch.arange(1, 128, dtype=torch.float64) / 128)
        two = one + 50
        tails = [torch.zeros(1).double() - (at[0] - one).clamp(min=0).mean()]
        tails += [((two - at[-1]).clamp(min=0).mean() - (one - at[-1]).clamp(min=0).mean())[None]]
        found = wasserstein(at[None], counted(one, at)[None], counted(two, at)[None], tails[0], tails[1])
        assert float(found) == pytest.approx(50, rel=1e-3)


class TestNoise:
    """What chance makes of each distance, beside many pairs of samples of one distribution."""

    FIRST, SECOND, PAIRS = 800, 500, 1_000

    def pairs(self, edges: Tensor) -> list[tuple[Tensor, Tensor]]:
        rows = normal(self.PAIRS, self.FIRST + self.SECOND, seed=3)
        return [(counted(each[: self.FIRST], edges), counted(each[self.FIRST :], edges)) for each in rows]

    def test_it_is_the_mean_of_healthy_pairs(self) -> None:
        sizes = self.FIRST, self.SECOND
        fine = torch.from_numpy(scipy.stats.norm.ppf(np.arange(1, 256) / 256))
        tenths = torch.from_numpy(scipy.stats.norm.ppf(np.arange(1, 10) / 10))
        smirnov = np.mean([kolmogorov_smirnov(*pair).value for pair in self.pairs(fine)])
        index = np.mean([stability_index(*pair) for pair in self.pairs(tenths)])
        squares = np.mean([jensen_shannon(*pair) ** 2 for pair in self.pairs(tenths)])
        assert smirnov == pytest.approx(kolmogorov_smirnov_noise(*sizes), rel=0.12)  # bins see up to a tenth less
        assert index == pytest.approx(stability_index_noise(10, *sizes), rel=0.1)
        assert math.sqrt(squares) == pytest.approx(jensen_shannon_noise(10, *sizes), rel=0.05)
        none = torch.zeros(1).double()
        moved = [float(wasserstein(fine[None], one[None], two[None], none, none)) for one, two in self.pairs(fine)]
        usual = counted(normal(100_000, seed=4), fine)[None]
        assert np.mean(moved) == pytest.approx(float(wasserstein_noise(fine[None], usual, *sizes)), rel=0.05)


class TestFrechet:
    def test_it_is_that_of_the_matrix_root(self) -> None:
        one, two = (normal(200, 6, seed=seed) @ normal(6, 6, seed=seed + 9) + seed for seed in (0, 1))
        a, b = gaussian(one), gaussian(two)
        root = scipy.linalg.sqrtm((a.covariance @ b.covariance).numpy()).real
        wanted = (
            float((a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace()) - 2 * root.trace()
        )
        assert frechet_distance(a, b) == pytest.approx(wanted, rel=1e-9)
        assert frechet_distance(b, a) == pytest.approx(wanted, rel=1e-9)
        assert frechet_distance(a, a) == pytest.approx(0, abs=1e-6)

    def test_diagonal_covariances_have_a_closed_form(self) -> None:
        a, b = (
            Gaussian(9, torch.zeros(3).double(), torch.diag(torch.tensor(v).double())) for v in ([1, 4, 9], [4, 4, 0])
        )
        assert frechet_distance(a, b) == pytest.approx((1 - 2) ** 2 + 0 + 3**2)

    @pytest.mark.parametrize("rows", [60, 300, 1_000])
    def test_the_bias_is_what_healthy_rows_have(self, rows: int) -> None:
        scale = torch.linspace(0.2, 2, 20).double()
        heavy = torch.distributions.StudentT(10.0)
        torch.manual_seed(0)  # StudentT takes no generator
        found, known = [], []
        for _ in range(20):
            reference, window = heavy.sample((500, 20)).double() * scale, heavy.sample((rows, 20)).double() * scale
            halves = gaussian(reference[:250]), gaussian(reference[250:])
            found.append(frechet_distance(gaussian(reference), gaussian(window)))
            known.append(frechet_bias(halves, gaussian(reference), rows))
        assert np.mean(known) == pytest.approx(np.mean(found), rel=0.1)


class TestWishart:
    def test_its_mean_is_the_covariance(self) -> None:
        values = torch.tensor([4.0, 1.0, 0.25]).double()
        mean = torch.stack([drawn_covariance(values, 20, seed=seed) for seed in range(2_000)]).mean(0)
        assert torch.allclose(mean, values.diag(), atol=0.1)

    def test_eigenvalues_are_those_of_drawn_rows(self) -> None:
        values = torch.linspace(1, 5, 30).double()
        rows = [torch.cov((normal(50, 30, seed=seed) * values.sqrt()).T) for seed in range(40)]
        drawn = [drawn_covariance(values, 50, seed=seed) for seed in range(40)]
        means = [torch.stack([torch.linalg.eigvalsh(each) for each in side]).mean(0) for side in (rows, drawn)]
        assert torch.allclose(means[0], means[1], rtol=0.05, atol=0.02)

    def test_few_rows_fill_few_directions(self) -> None:
        assert int(torch.linalg.matrix_rank(drawn_covariance(torch.ones(8).double(), 4, seed=0))) == 3


class TestDiscrepancy:
    def blocks(self, rows: Tensor, frequencies: Tensor) -> Blocks:
        features = doubled_features(rows, frequencies).flatten(1).view(len(rows) // BLOCK, BLOCK, -1).sum(1)
        keys = torch.arange(len(features))
        return Blocks(keys, torch.full_like(keys, BLOCK), features)

    def test_it_is_the_mean_kernel_of_all_pairs_of_other_blocks(self) -> None:
        one, two = normal(200, 5, seed=0), normal(300, 5, seed=1) * 1.3 + 0.4
        precision = 0.02
        frequencies = gaussian_frequencies(5, 20_000, precision=precision, seed=0).double()
        found = discrepancy(self.blocks(one, frequencies), self.blocks(two, frequencies))
        assert found is not None
        for octave in range(3):
            gamma = precision * 4**octave
            parts = []
            for side in (one, two):
                apart = ~torch.block_diag(*[torch.ones(BLOCK, BLOCK)] * (len(side) // BLOCK)).bool()
                parts.append(sklearn.metrics.pairwise.rbf_kernel(side.numpy(), gamma=gamma)[apart.numpy()].mean())
            cross = sklearn.metrics.pairwise.rbf_kernel(one.numpy(), two.numpy(), gamma=gamma).mean()
            assert float(found[octave]) == pytest.approx(sum(parts) - 2 * cross, abs=0.01)

    @pytest.mark.parametrize("repeats", [1, 5])
    def test_its_noise_is_the_deviation_of_healthy_pairs_also_where_rows_repeat(self, repeats: int) -> None:
        frequencies = gaussian_frequencies(5, 64, precision=0.1, seed=0).double()
        found, known = [], []
        for seed in range(100):
            one, two = (normal(400 // repeats, 5, seed=2 * seed + k).repeat_interleave(repeats, 0) for k in (0, 1))
            sides = self.blocks(one, frequencies), self.blocks(two, frequencies)
            value, noise = discrepancy(*sides), discrepancy_noise(sides[0], 400, 400)
            assert value is not None
            assert noise is not None
            found.append(float(value.sum()))
            known.append(float(noise[-1]))
        assert np.std(found) == pytest.approx(np.mean(known), rel=0.25)
        assert abs(np.mean(found)) < 0.3 * np.mean(known)

    def test_too_few_blocks_have_none(self) -> None:
        frequencies = gaussian_frequencies(5, 8, precision=0.1, seed=0).double()
        one = self.blocks(normal(BLOCK, 5, seed=0), frequencies)
        assert discrepancy(one, one) is None
        assert discrepancy_noise(one, BLOCK, BLOCK) is None


def test_units_draw_in_what_lies_too_far() -> None:
    rows = normal(500, 3, seed=0) * 7 + 100
    units = Units.of(rows)
    assert float(units.apply(rows).norm(dim=1).square().mean()) == pytest.approx(1)
    far = units.apply(torch.tensor([[1e30, 0.0, 0.0]]))
    assert far.norm() == pytest.approx(FARTHEST)
    assert float(Units.of(torch.ones(4, 2)).size) == 1
