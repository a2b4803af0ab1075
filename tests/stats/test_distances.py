"""Distances from a reference: known answers from scipy and scikit-learn, small on healthy rows, `None` for too few."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import sklearn.neighbors
import torch
from torch import Tensor

from embedwatch.core import Statistic
from embedwatch.core.registry import get
from embedwatch.geometry.spectrum import effective_rank
from embedwatch.geometry.units import Units
from embedwatch.sketches import ComparedStatistic, Frozen
from tests.topics import batch, stream

NAMES = (
    "norm_distance",
    "kernel_distance",
    "nearest_reference",
    "frechet",
    "sliced_wasserstein",
    "codebook",
    "anisotropy",
)
ROWS = 1_600
HALF = ROWS // 2


def kind(name: str) -> type[ComparedStatistic]:
    found = get(Statistic, name)
    assert issubclass(found, ComparedStatistic)
    return found


@cache
def reference() -> Tensor:
    return stream(ROWS, seed=0)


@cache
def frozen(name: str) -> Frozen:
    return kind(name).fit([batch(reference())], rows=ROWS)


def compared(name: str, rows: Tensor, arrays: Frozen | None = None) -> ComparedStatistic:
    statistic = kind(name)(frozen=arrays or frozen(name))
    statistic.update(batch(rows))
    return statistic


def numbers(name: str, rows: Tensor, arrays: Frozen | None = None) -> dict[str, float | None]:
    return {m.key: m.number for m in compared(name, rows, arrays).compute()}


def number(name: str, key: str, rows: Tensor) -> float:
    found = numbers(name, rows)[key]
    assert found is not None
    return found


def error(name: str, key: str, rows: Tensor) -> float:
    (found,) = [m.error for m in compared(name, rows).compute() if m.key == key]
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES)
def test_too_few_rows_have_no_distance(name: str) -> None:
    assert set(numbers(name, stream(49, seed=1)).values()) == {None}
    few = kind(name).fit([batch(stream(90, seed=1))], rows=90)
    assert set(numbers(name, stream(500, seed=2), few).values()) == {None}


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_distance_of_enough(name: str) -> None:
    assert None not in numbers(name, stream(500, seed=1)).values()


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_do_not_vary_fail_nothing(name: str) -> None:
    same = torch.ones(300, 16)
    arrays = kind(name).fit([batch(same)], rows=300)
    numbers(name, same, arrays)
    numbers(name, stream(300, seed=1), arrays)


class TestNorms:
    def test_it_is_the_distance_of_kolmogorov_and_smirnov(self) -> None:
        window = stream(700, seed=1) * 1.1
        wanted = scipy.stats.ks_2samp(reference()[HALF:].norm(dim=1).numpy(), window.norm(dim=1).numpy()).statistic
        assert number("norm_distance", "norm_distance", window) == pytest.approx(wanted, abs=0.01)

    def test_rounding_of_unit_rows_is_no_distance(self) -> None:
        unit = torch.nn.functional.normalize(reference(), dim=1)
        arrays = kind("norm_distance").fit([batch(unit)], rows=ROWS)
        rounded = torch.nn.functional.normalize(stream(500, seed=1), dim=1).half().float()
        assert numbers("norm_distance", rounded, arrays) == {"norm_distance": 0.0, "norm_stability_index": 0.0}
        assert numbers("norm_distance", rounded * 1.01, arrays)["norm_distance"] == 1.0


class TestKernel:
    def test_healthy_windows_stay_within_a_few_deviations_also_where_topics_last(self) -> None:
        for stay in (0.0, 0.8):
            arrays = kind("kernel_distance").fit([batch(stream(4_000, seed=7, stay=stay))], rows=4_000)
            windows = [numbers("kernel_distance", stream(1_000, seed=k, stay=stay), arrays) for k in range(20)]
            found = [window["kernel_distance_deviations"] for window in windows]
            assert all(value is not None and -3 < value < 5 for value in found)

    def test_a_third_of_other_rows_is_far(self) -> None:
        window = stream(999, seed=1)
        window[::3] = stream(333, seed=2).flip(1)
        assert number("kernel_distance", "kernel_distance_deviations", window) > 5


class TestNearest:
    def test_distances_are_those_of_scikit_learn(self) -> None:
        window, units = stream(400, seed=1) * 1.3, Units.of(reference()[:HALF])
        neighbours = sklearn.neighbors.NearestNeighbors(n_neighbors=5).fit(units.apply(reference()[:HALF]).numpy())

        def fifth(rows: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            found: np.ndarray[tuple[int], np.dtype[np.float64]] = neighbours.kneighbors(units.apply(rows).numpy())[0][
                :, 4
            ]
            return found

        usual, found = fifth(reference()[HALF:]), fifth(window)
        have = numbers("nearest_reference", window)
        assert have["nearest_reference_ratio"] == pytest.approx(found.mean() / usual.mean(), rel=2e-3)
        beyond = float((found > np.quantile(usual, 0.95)).mean())
        assert have["nearest_reference_beyond_ratio{q=0.95}"] == pytest.approx(beyond, abs=0.03)

    def test_strangers_are_named(self) -> None:
        window = stream(400, seed=1)
        window[[7, 99]] += 20
        (exhibit,) = compared("nearest_reference", window).exhibits()
        assert {row[0] for row in exhibit.rows[:2]} == {7, 99}


class TestFrechet:
    def test_healthy_rows_have_no_more_left_than_is_known_of_chance(self) -> None:
        key = "frechet_excess_ratio"
        found = [number("frechet", key, stream(800, seed=seed)) for seed in range(1, 21)]
        known = error("frechet", key, stream(800, seed=1))
        assert abs(np.mean(found)) < 2 * known
        assert np.max(np.abs(found)) < 4 * known
        assert number("frechet", key, stream(800, seed=1) * 1.3) > 10 * known

    def test_a_shift_is_its_square(self) -> None:
        window = stream(800, seed=1) + 1.0
        assert number("frechet", "frechet_distance", window) == pytest.approx(16, rel=0.1)


class TestSliced:
    def test_it_is_the_mean_of_scipy_over_directions(self) -> None:
        window = stream(700, seed=1) * 1.3 + 0.2
        arrays = frozen("sliced_wasserstein")
        units = Units(arrays["centre"], arrays["size"])
        sides = [(units.apply(rows) @ arrays["directions"]).T.numpy() for rows in (reference()[HALF:], window)]
        wanted = [scipy.stats.wasserstein_distance(a, b) for a, b in zip(*sides, strict=True)]
        have = numbers("sliced_wasserstein", window)
        assert have["sliced_wasserstein_ratio"] == pytest.approx(float(np.mean(wanted)), rel=0.02)
        assert have["sliced_wasserstein_largest_ratio"] == pytest.approx(max(wanted), rel=0.03)

    def test_healthy_rows_have_what_chance_makes(self) -> None:
        window, key = stream(800, seed=1), "sliced_wasserstein_ratio"
        assert number("sliced_wasserstein", key, window) == pytest.approx(
            error("sliced_wasserstein", key, window), rel=0.5
        )

    def test_a_direction_is_named_by_the_row_at_its_end(self) -> None:
        arrays = frozen("sliced_wasserstein")
        units = Units(arrays["centre"], arrays["size"])
        toward = arrays["directions"][:, 3] / arrays["directions"][:, 3].norm()
        window = stream(500, seed=1) + (toward * 3 * units.size).float()
        (exhibit,) = compared("sliced_wasserstein", window).exhibits()
        assert exhibit.columns == ("direction", "distance", "reference_row")
        heights = units.apply(reference()[:HALF]) @ toward
        assert (exhibit.rows[0][0], exhibit.rows[0][2]) == (3, int(heights.argmax()))


class TestCodebook:
    def test_shares_are_those_of_the_nearest_centre(self) -> None:
        window, arrays = stream(500, seed=1), frozen("codebook")
        units = Units(arrays["centre"], arrays["size"])
        nearest = sklearn.metrics.pairwise_distances_argmin(units.apply(window).numpy(), arrays["centres"].numpy())
        counts = np.bincount(nearest, minlength=len(arrays["centres"]))
        assert np.array_equal(compared("codebook", window).state_dict()["totals.cells"].numpy(), counts)

    def test_a_topic_that_left_moves_mass(self) -> None:
        healthy, key = stream(800, seed=1), "codebook_distance"
        assert number("codebook", key, healthy) < 1.5 * error("codebook", key, healthy)
        assert number("codebook", key, stream(800, seed=1, topic=2)) > 0.7

    def test_cells_that_spread_lose_cohesion(self) -> None:
        spread = numbers("codebook", stream(800, seed=1) + 0.8 * torch.randn(800, 16, generator=torch.Generator()))
        for cell in ("worst", "median"):
            assert (spread[f"codebook_cohesion_ratio{{cell={cell}}}"] or 0) > 1.1

    def test_rows_of_nowhere_are_new(self) -> None:
        window = stream(400, seed=1)
        healthy = number("codebook", "codebook_new_region_ratio{side=window}", window)
        assert healthy < number("codebook", "codebook_new_region_ratio{side=reference}", window) + 0.05
        window[:100] += 30
        assert number("codebook", "codebook_new_region_ratio{side=window}", window) > healthy + 0.2


class TestAnisotropy:
    def test_it_is_the_difference_of_mean_cosines(self) -> None:
        def mean(rows: Tensor) -> float:
            cosines = sklearn.metrics.pairwise.cosine_similarity(rows.double().numpy())
            return float((cosines.sum() - len(rows)) / (len(rows) * (len(rows) - 1)))

        window = stream(500, seed=1) + 0.5
        wanted = mean(window) - mean(reference()[HALF:])
        assert number("anisotropy", "anisotropy_shift", window) == pytest.approx(wanted, abs=1e-6)

    @pytest.mark.parametrize("count", [40, 80, 800])
    def test_ranks_do_not_depend_on_the_number_of_rows(self, count: int) -> None:
        arrays = kind("anisotropy").fit([batch(torch.randn(ROWS, 16, generator=torch.Generator()))], rows=ROWS)
        found = []
        for seed in range(30):
            rows = torch.randn(max(50, count), 16, generator=torch.Generator().manual_seed(seed))
            found.append(numbers("anisotropy", rows, arrays))
        for key in ("anisotropy_participation_ratio", "anisotropy_rank_ratio"):
            assert np.mean([each[key] for each in found]) == pytest.approx(1, abs=0.06)

    def test_fewer_directions_are_fewer(self) -> None:
        window = stream(800, seed=1)
        flat = window.clone()
        flat[:, 8:] = flat[:, 8:] * 0.01
        unit = torch.nn.functional.normalize(flat, dim=1).double()
        before = torch.nn.functional.normalize(reference()[HALF:], dim=1).double()
        ranks = [effective_rank(torch.linalg.eigvalsh(torch.cov(rows.T)).flip(0)) for rows in (unit, before)]
        assert ranks[0] is not None
        assert ranks[1] is not None
        assert number("anisotropy", "anisotropy_rank_ratio", flat) == pytest.approx(ranks[0] / ranks[1], rel=1e-3)


@pytest.mark.parametrize("name", ["frechet", "anisotropy"])
def test_wide_rows_are_seen_in_leading_directions(name: str) -> None:
    wide = stream(1_200, seed=0, dimension=40)
    arrays = kind(name).fit([batch(wide)], rows=1_200, exact_up_to=20, directions=10)
    found = compared(name, stream(600, seed=1, dimension=40), arrays)
    assert all(tensor.shape[-1] == 10 for key, tensor in found.state_dict().items() if key.endswith("scatter"))
    assert None not in [m.number for m in found.compute()]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_of_people_gets_one_line_of_each(name: str) -> None:
    assert [metric.headline for metric in kind(name).metrics].count(True) == 1
    assert not kind(name).live
