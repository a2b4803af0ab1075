"""Known answers of what a calibrated comparison is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.covariance
import torch

from embedwatch.core import UsageError
from embedwatch.geometry.blocks import BINS, Blocks, Columns, block_features, joined
from embedwatch.geometry.comparison import Side, pair
from embedwatch.geometry.effects import effects
from embedwatch.geometry.local_scan import LocalScan, local_scan
from embedwatch.geometry.permutation import (
    block_labels,
    differences_p_value,
    family_p_value,
    label_differences,
    seam,
    staged_p_values,
    weighted_p_value,
)
from embedwatch.geometry.persistence import cell_decay_length, decay_length, steps_together
from embedwatch.geometry.whitening import Whitening, centred_fourth, dead_energy, shrinkage, whiten, whitening
from embedwatch.sketches import WhiteningSums
from tests.topics import DIMENSION, batch, stream


def normal(count: int, dimension: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed))


def plain(dimension: int) -> Whitening:
    eye = torch.eye(dimension).double()
    return Whitening(torch.zeros(dimension).double(), eye, torch.ones(dimension).double(), dead=0)


def blocks_of(rows: torch.Tensor, size: int, by: Whitening) -> Blocks:
    features = block_features(rows, rows.norm(dim=1), by, 1.0)
    ids = torch.arange(len(rows))
    return joined(Blocks(ids, torch.ones_like(ids), features), size)


class TestWhitening:
    @pytest.mark.parametrize("count", [50, 300, 3_000])
    def test_shrinkage_is_that_of_scikit_learn(self, count: int) -> None:
        rows = normal(count, 40) * torch.linspace(0.1, 2, 40) + 5
        wide = rows.double()
        covariance = torch.from_numpy(np.cov(wide.numpy().T, bias=True))
        fourth = float((wide - wide.mean(0)).square().sum(1).square().sum())
        wanted = sklearn.covariance.ledoit_wolf_shrinkage(wide.numpy())
        assert shrinkage(covariance, count, fourth) == pytest.approx(wanted, rel=1e-9)

    def test_sums_of_batches_give_the_whitening_of_all_rows(self) -> None:
        rows = normal(900, 12) * torch.linspace(0.2, 2, 12) + 30
        sums = WhiteningSums()
        for part in rows.split(123):
            sums.add(batch(part))
        found = sums.whitening()
        shrunk, _ = sklearn.covariance.ledoit_wolf(rows.double().numpy())
        values = np.linalg.eigvalsh(shrunk)[::-1]
        np.testing.assert_allclose(found.variances, values, rtol=1e-4)
        np.testing.assert_allclose(found.mean, rows.double().mean(0), rtol=1e-6)
        back = found.basis @ torch.diag(found.variances) @ found.basis.T
        np.testing.assert_allclose(back, shrunk, atol=1e-4)

    def test_the_fourth_moment_from_sums(self) -> None:
        rows = normal(200, 5).double() + 1
        mean, squares = rows.mean(0), rows.square().sum(1)
        centred = rows - mean
        found = centred_fourth(
            200,
            mean,
            centred.T @ centred,
            torch.stack([squares.sum(), squares.square().sum()]),
            (rows * squares[:, None]).sum(0),
        )
        assert found == pytest.approx(float(centred.square().sum(1).square().sum()), rel=1e-9)

    def test_rows_that_took_no_part_have_the_spread_that_was_promised(self) -> None:
        sums = WhiteningSums()
        sums.add(batch(normal(150, 60, seed=1)))
        white = whiten(normal(5_000, 60, seed=2), sums.whitening())
        assert float(white.square().sum(1).mean()) / 60 == pytest.approx(1, abs=0.2)
        unshrunk = torch.linalg.inv(torch.cov(normal(150, 60, seed=1).double().T))
        fresh = normal(5_000, 60, seed=2).double()
        assert float(((fresh @ unshrunk) * fresh).sum(1).mean()) / 60 > 1.5  # what it would be without

    def test_rows_that_do_not_vary_are_refused(self) -> None:
        with pytest.raises(UsageError, match="must have variance"):
            whitening(torch.zeros(2), torch.zeros(2, 2), count=5, fourth=0.0)

    def test_empty_directions_are_dead_only_where_enough_rows_say_so(self) -> None:
        rows = normal(400, 20)
        rows[:, 18:] = 0.3
        for count, dead in ((400, 2), (30, 0)):
            sums = WhiteningSums()
            sums.add(batch(rows[:count]))
            found = sums.whitening()
            assert found.dead == dead
            assert float(found.variances.min()) > 0

    def test_dead_energy_is_floored_at_the_rounding_of_half_precision(self) -> None:
        rows = normal(400, 20) / 20**0.5
        rows[:, 18:] = 0.3
        sums = WhiteningSums()
        sums.add(batch(rows))
        by = sums.whitening()
        silent, rounded, noisy = (
            float(dead_energy(whiten(each, by), by).mean())
            for each in (rows, rows.half().float(), rows + 0.05 / 20**0.5 * normal(400, 20, seed=3))
        )
        assert rounded == pytest.approx(silent, abs=0.05)
        assert noisy > silent + 3


class TestPersistence:
    @pytest.mark.parametrize("stay", [0.5, 0.9, 0.95])
    def test_topics_that_are_left_with_probability_p_last_for_one_over_p(self, stay: float) -> None:
        """A new topic is the old one in 1 of 12 draws, so that a topic lasts a little longer."""
        truth = 1 / ((1 - stay) * (1 - 1 / 12))
        found = [decay_length(stream(4_000, seed=seed, stay=stay)) for seed in range(6)]
        assert np.median(found) == pytest.approx(truth, rel=0.3)

    def test_the_usual_integrated_time_is_too_short_where_rows_differ_inside_topics(self) -> None:
        rows = stream(4_000, seed=0, stay=0.9).double()
        centred = rows - rows.mean(0)
        covariances = [float((centred[lag:] * centred[: 4_000 - lag]).sum()) for lag in range(40)]
        usual = sum(covariances[1:]) / covariances[0]
        assert usual < 0.5 * decay_length(rows)

    def test_independent_rows_count_one_by_one(self) -> None:
        assert {decay_length(normal(1_000, 16, seed)) for seed in range(20)} == {1.0}
        cells = torch.randint(0, 8, (1_000,), generator=torch.Generator().manual_seed(0))
        assert cell_decay_length(cells) == 1.0

    def test_cells_that_last(self) -> None:
        generator = torch.Generator().manual_seed(0)
        cells = torch.randint(0, 30, (800,), generator=generator).repeat_interleave(5)
        assert 2 < cell_decay_length(cells) < 4  # Σ (5 - k) / 4 = 2.5 for runs of exactly 5

    @pytest.mark.parametrize("length", [0, 1, 4, 5])
    def test_a_few_rows_or_equal_ones_say_nothing(self, length: int) -> None:
        assert decay_length(torch.ones(length, 3)) == 1.0
        assert cell_decay_length(torch.zeros(length, dtype=torch.int64)) == 1.0
        assert not steps_together(torch.ones(length, 3))

    def test_neighbouring_blocks_of_a_slow_stream_resemble_each_other(self) -> None:
        assert steps_together(normal(100, 4).cumsum(0))
        assert not steps_together(normal(100, 4))


class TestPermutation:
    def test_differences_of_means_by_hand(self) -> None:
        labels = torch.tensor([[0.0, 0.0, 1.0]]).double()
        found = label_differences(
            torch.tensor([[2.0], [4.0], [9.0]]).double(), torch.tensor([1.0, 2.0, 3.0]).double(), labels
        )
        assert found.tolist() == [[1.0]]  # 9 / 3 - 6 / 3

    def test_every_labelling_has_as_many_on_the_right(self) -> None:
        labels = block_labels(4, 3, 50, seed=1)
        assert labels.shape == (51, 7)
        assert set(labels.sum(1).tolist()) == {3.0}
        assert torch.equal(labels, block_labels(4, 3, 50, seed=1))

    def test_many_statistics_still_reach_the_smallest_p_value(self) -> None:
        """Ranks of each statistic would tie at 1 / 1,000 and never combine to 1 %."""
        statistics = normal(1_000, 40)
        statistics[0, 7] = 9
        assert family_p_value(statistics) == 1 / 1_000

    def test_p_values_of_nothing_are_uniform(self) -> None:
        found = [family_p_value(normal(200, 5, seed)) for seed in range(300)]
        assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.05)

    def test_statistics_that_never_move_say_nothing(self) -> None:
        assert family_p_value(torch.ones(100, 3)) == 1.0
        assert differences_p_value(either=torch.ones(100, 3), more=torch.ones(100, 2)) == 1.0

    def test_a_deficit_is_none_where_more_is_asked(self) -> None:
        differences = normal(1_000, 1).double()
        for observed, either, more in ((9.0, 1 / 1_000, 1 / 1_000), (-9.0, 1 / 1_000, 1.0)):
            differences[0] = observed
            nothing = torch.zeros(1_000, 0).double()
            assert differences_p_value(either=differences, more=nothing) == either
            assert differences_p_value(either=nothing, more=differences) == more

    def test_p_values_of_differences_that_are_none_are_uniform(self) -> None:
        found = [
            differences_p_value(either=normal(200, 3, seed), more=normal(200, 3, 900 + seed)) for seed in range(300)
        ]
        assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.05)

    def test_what_rounding_moves_is_no_difference(self) -> None:
        differences = 1e-4 * normal(100, 1).double()
        differences[0] = 9e-4
        nothing = torch.zeros(100, 0).double()
        assert differences_p_value(either=differences, more=nothing) == 0.01
        assert differences_p_value(either=differences, more=nothing, rounding=torch.tensor([1e-3])) == 1.0

    def test_weights_and_the_seam(self) -> None:
        weights = {"content": 2, "shift": 1, "geometry": 1}
        assert weighted_p_value({"content": 0.01, "shift": 0.9}, weights) == pytest.approx(0.015)
        assert weighted_p_value({"content": 0.01, "shift": 0.9, "geometry": 0.9}, weights) == pytest.approx(0.02)
        assert weighted_p_value({}, {}) == 1.0
        assert seam(1.0, 10) == 1.0
        assert seam(10.0, 50) == pytest.approx(math.sqrt(0.8))
        assert seam(60.0, 50) == 0.0


class TestBlocks:
    def test_columns_of_a_row_by_hand(self) -> None:
        found = block_features(torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]), plain(2), 5.0)[0]
        columns = Columns(2)
        assert len(found) == columns.width
        assert found[:5].tolist() == [25.0, 25.0, 0.0, 0.0, 25.0]
        assert found[columns.first].tolist() == [3.0, 4.0]
        assert found[columns.second].tolist() == [9.0, 16.0]
        assert float(found[columns.tails].sum()) == 1
        assert int(found[columns.tails].argmax()) == math.floor((math.log2(12.5) + 3) * 32)
        assert found[columns.tails].shape == (BINS,)
        assert torch.equal(found[columns.half_tails], found[columns.tails])  # where all variances are 1

    def test_half_way_between_the_whitened_and_the_plain_distance(self) -> None:
        by = plain(2)._replace(variances=torch.tensor([16.0, 1.0]).double())
        found = block_features(torch.tensor([[4.0, 3.0]]), torch.tensor([5.0]), by, 5.0)[0]
        assert found[[0, 4, 1]].tolist() == [1 + 9, 4 + 9, 16 + 9]

    def test_blocks_are_five_decay_lengths_and_incomplete_ones_are_left_out(self) -> None:
        blocks = blocks_of(normal(203, 3), 10, plain(3))
        sides = [Side(blocks, 10, length, torch.zeros(3)) for length in (1.0, 3.0)]
        assert len(pair(sides[0], sides[0], Columns(3)).left.keys) == 20
        assert (pair(sides[0], sides[1], Columns(3)).rows, pair(sides[0], sides[1], Columns(3)).length) == (20, 3.0)

    def test_blocks_that_resemble_their_neighbours_are_joined(self) -> None:
        slow = blocks_of(normal(50, 3).cumsum(0).repeat_interleave(10, 0), 10, plain(3))
        side = Side(slow, 10, 1.0, torch.zeros(3))
        assert pair(side, side, Columns(3)).rows > 10


class TestEffects:
    def test_a_share_of_foreign_rows_is_told(self) -> None:
        left, right = normal(4_000, 8, 1), normal(4_000, 8, 2)
        right[::10] *= 30
        found = effects(blocks_of(left, 10, plain(8)), blocks_of(right, 10, plain(8)), plain(8))
        assert found is not None
        assert found.foreign == pytest.approx(0.1, abs=0.01)

    def test_healthy_rows_have_next_to_no_foreign_share(self) -> None:
        by, shares = plain(16), []
        for seed in range(40):
            sides = [blocks_of(normal(1_000, 16, 2 * seed + side), 10, by) for side in (0, 1)]
            found = effects(sides[0], sides[1], by)
            shares.append(0.0 if found is None else found.foreign)
        assert np.mean(shares) < 0.003  # without the error taken off, 0.008
        assert max(shares) < 0.03

    def test_all_foreign_is_all(self) -> None:
        found = effects(blocks_of(normal(500, 8), 10, plain(8)), blocks_of(normal(500, 8) * 30, 10, plain(8)), plain(8))
        assert found is not None
        assert found.foreign == pytest.approx(1, abs=0.01)
        assert found.norm == pytest.approx(30, rel=0.1)
        assert found.variance == pytest.approx(900, rel=0.01)
        assert found.rank == pytest.approx(1, rel=0.01)

    def test_the_distance_of_means_has_no_noise_in_it(self) -> None:
        by = plain(64)
        still = effects(blocks_of(normal(200, 64, 1), 10, by), blocks_of(normal(200, 64, 2), 10, by), by)
        moved = effects(blocks_of(normal(200, 64, 1), 10, by), blocks_of(normal(200, 64, 2) + 0.5, 10, by), by)
        assert still is not None
        assert moved is not None
        assert still.centroid_distance < 0.05  # the means themselves are 0.1 apart
        assert moved.centroid_distance == pytest.approx(0.5, abs=0.05)

    def test_nothing_has_no_effect(self) -> None:
        blocks = blocks_of(normal(20, 3), 10, plain(3))
        assert effects(blocks, Blocks(*(part[:0] for part in blocks)), plain(3)) is None


class TestStagedPValues:
    @staticmethod
    def asked(few: float, all_: float) -> tuple[float, list[int]]:
        """Return the p-value, and of how many permutations it was asked."""
        counts: list[int] = []

        def p_value(labels: torch.Tensor) -> float:
            counts.append(len(labels) - 1)
            return few if len(labels) == 100 else all_

        return staged_p_values({"one": p_value}, 20, 20, 999, seed=0)["one"], counts

    def test_where_chance_is_plain_the_few_are_enough(self) -> None:
        assert self.asked(0.11, 0.001) == (0.11, [99])

    def test_else_all_are_asked(self) -> None:
        assert self.asked(0.1, 0.3) == (0.3, [99, 999])

    def test_each_family_is_asked_by_itself(self) -> None:
        found = staged_p_values({"a": lambda _: 0.5, "b": lambda labels: 1 / len(labels)}, 20, 20, 199, seed=0)
        assert found == {"a": 0.5, "b": 1 / 200}

    def test_few_permutations_are_not_stretched(self) -> None:
        assert staged_p_values({"a": lambda labels: 1 / len(labels)}, 20, 20, 19, seed=0) == {"a": 1 / 20}

    def test_healthy_statistics_give_uniform_p_values(self) -> None:
        generator = torch.Generator().manual_seed(0)
        found = []
        for seed in range(400):
            sums = torch.randn(40, 1, generator=generator, dtype=torch.float64)

            def p_value(labels: torch.Tensor, sums: torch.Tensor = sums) -> float:
                return family_p_value(label_differences(sums, torch.ones(40).double(), labels).abs())

            found.append(staged_p_values({"one": p_value}, 20, 20, 199, seed=seed)["one"])
        for level in (0.01, 0.05, 0.1, 0.5):
            assert sum(each <= level for each in found) <= 400 * level + 3 * (400 * level * (1 - level)) ** 0.5


class TestLocalScan:
    @staticmethod
    def found(left: torch.Tensor, right: torch.Tensor, permutations: int = 199) -> LocalScan:
        rows = torch.cat([left, right])
        sides = len(left) // 10, len(right) // 10
        return local_scan(rows, torch.arange(len(rows)) // 10, sides, permutations=permutations, seed=0)

    def scan(self, left: torch.Tensor, right: torch.Tensor) -> float:
        return self.found(left, right).p_value

    def test_a_new_topic_is_found_and_its_rows_are_the_crowded_ones(self) -> None:
        right = stream(600, seed=2)
        right[::12] = 4 * torch.ones(DIMENSION) + 0.1 * normal(50, DIMENSION)
        found = self.found(stream(600, seed=1), right)
        assert found.p_value == 1 / 200
        assert set(found.crowded.topk(50).indices.tolist()) == {600 + 12 * place for place in range(50)}
        assert 0.05 < found.foreign < 50 / 600  # all of them, less a standard error

    def test_a_lost_topic_is_found_and_leaves_no_foreign_rows(self) -> None:
        left = stream(600, seed=1)
        left[::6] = 4 * torch.ones(DIMENSION) + 0.1 * normal(100, DIMENSION)
        found = self.found(left, stream(600, seed=2))
        assert found.p_value == 1 / 200
        assert found.foreign < 0.03

    def test_healthy_rows_hold_hardly_any_foreign_ones_though_the_fullest_region_is_chosen(self) -> None:
        shares = [self.found(stream(300, seed=2 * seed), stream(300, seed=2 * seed + 1)).foreign for seed in range(20)]
        assert sum(shares) / len(shares) < 0.01

    def test_two_rows_are_in_one_region(self) -> None:
        found = self.found(torch.zeros(10, 3), torch.zeros(10, 3))
        assert (found.p_value, found.foreign) == (1.0, 0.0)

    def test_one_far_row_is_not_all_that_is_seen(self) -> None:
        left, right = stream(600, seed=1), stream(600, seed=2)
        right[::12] = 4 * torch.ones(DIMENSION) + 0.1 * normal(50, DIMENSION)
        left[7] = 1e6
        assert self.scan(left, right) == 1 / 200

    def test_rows_as_they_are_stay_calibrated(self) -> None:
        found = [self.scan(stream(300, seed=2 * seed), stream(300, seed=2 * seed + 1)) for seed in range(40)]
        assert sum(each <= 0.05 for each in found) <= 6

    def test_repeats_would_be_regions(self) -> None:
        right = stream(300, seed=2)
        repeated = torch.arange(300) % 5 == 0
        right[repeated] = right[0].clone()
        assert self.scan(stream(300, seed=1), right) < 0.01
        assert self.scan(stream(300, seed=1)[:240], right[~repeated]) > 0.05

    def test_one_side_in_every_region_alone(self) -> None:
        assert self.scan(normal(100, 3), normal(100, 3) + 90) == 1 / 200
