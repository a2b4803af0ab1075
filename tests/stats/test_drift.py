"""What a comparison with a reference finds, and each trap that makes others find too much or nothing.

The traps were measured on real embeddings; here each stands on a stream of the same kind that is small enough to try
dozens of times. Seeds are fixed, so that bounds on counts hold or fail for good.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core import MergeError, UsageError
from embedwatch.stats.drift import Drift
from tests.topics import DIMENSION, batch, drifted, stream

P = "drift_p_value"
FAST: dict[str, Any] = {"permutations": 199}
TRIALS = 60


def foreign(rows: torch.Tensor, share: float, *, size: float = 2.5) -> torch.Tensor:
    """Return rows with every so many of them from another place, of larger spread."""
    changed = rows.clone()
    every = round(1 / share)
    generator = torch.Generator().manual_seed(5)
    changed[::every] = size * torch.randn(len(changed[::every]), rows.shape[1], generator=generator)
    return changed


def mapped(rows: torch.Tensor) -> Any:
    """Return the arrays of a map that is fitted on rows."""
    fitter = Drift.fitter()
    fitter.update(batch(rows))
    return fitter.frozen()


def stretched(rows: torch.Tensor) -> torch.Tensor:
    """Return rows with the same mean, wider in some directions and narrower in others."""
    return rows.mean(0) + (rows - rows.mean(0)) * torch.linspace(1.3, 0.7, DIMENSION)


@cache
def healthy(stay: float) -> tuple[float | None, ...]:
    """P-values of pairs of one source."""
    return tuple(
        drifted(stream(1_000, seed=2 * seed, stay=stay), stream(500, seed=2 * seed + 1, stay=stay), **FAST)[P]
        for seed in range(TRIALS)
    )


def alarms(p_values: tuple[float | None, ...], level: float) -> int:
    return sum(p_value is not None and p_value <= level for p_value in p_values)


class TestCalibration:
    def test_trap_1_thresholds_of_tails_are_pooled(self) -> None:
        assert alarms(healthy(0.0), 0.05) <= 7
        assert None not in healthy(0.0)

    def test_trap_8_blocks_are_permuted_and_what_is_observed_is_shortened(self) -> None:
        """Ten rows to a topic: as if rows were independent, every pair would differ."""
        assert alarms(healthy(0.9), 0.05) <= 7
        naive = 0
        for seed in range(10):
            reference, window = stream(1_000, seed=2 * seed, stay=0.9), stream(500, seed=2 * seed + 1, stay=0.9)
            mixed = torch.Generator().manual_seed(seed)
            shuffled = [rows[torch.randperm(len(rows), generator=mixed)] for rows in (reference, window)]
            naive += (drifted(shuffled[0], shuffled[1], **FAST)[P] or 1) <= 0.05
        assert naive >= 7

    def test_too_slow_a_stream_is_left_open(self) -> None:
        found = [
            drifted(stream(1_000, seed=seed, stay=0.99), stream(500, seed=seed + 1, stay=0.99)) for seed in (0, 2, 4)
        ]
        assert [each[P] for each in found] == [None] * 3
        assert all((each["drift_rows_needed"] or 0) > 1_000 for each in found)
        assert all((each["drift_decay_length"] or 0) > 10 for each in found)

    @pytest.mark.parametrize(("rows", "asked"), [(100, True), (90, False)])
    def test_ten_blocks_are_compared_in_all_families(self, rows: int, asked: bool) -> None:
        found = drifted(stream(1_000, seed=0), stream(rows, seed=1), **FAST)
        assert found["drift_blocks{side=window}"] == rows / 10
        families = [value for key, value in found.items() if key.startswith("drift_family")]
        assert [value is not None for value in families] == [asked] * 4
        assert found["drift_rows_needed"] == 100

    def test_a_stream_that_is_sorted_by_topic_is_left_open(self) -> None:
        """Its first rows are of one topic and look independent; the means of its blocks do not."""
        rows = torch.cat([stream(6_000, seed=topic, topic=topic % 4) for topic in range(4)])
        assert drifted(rows, rows + 1e-3, **FAST)[P] is None


class TestTraps:
    def test_2_cells_are_for_people_and_move_no_p_value(self) -> None:
        reference, window = stream(800, seed=0), stream(400, seed=1)
        found = []
        for cells in (1, 24):
            statistic = Drift(frozen=Drift.fit([batch(reference)], rows=800, cells=cells), **FAST)
            statistic.update(batch(window))
            found.append([measurement.number for measurement in statistic.compute()])
        assert found[0] == found[1]

    def test_3_the_smallest_p_value_can_be_reached(self) -> None:
        found = drifted(stream(800, seed=0), 3 * stream(400, seed=1))
        assert found[P] == pytest.approx(3 / 10_000)

    def test_4_rounding_to_half_precision_alone_is_no_drift(self) -> None:
        unit = torch.nn.functional.normalize
        reference, window = unit(stream(1_000, seed=0), dim=1), unit(stream(500, seed=1), dim=1)
        exact, rounded = drifted(reference, window), drifted(reference, window.half().float())
        assert rounded[P] == pytest.approx(exact[P], abs=0.1)  # a row in a thousand goes to another region

    def test_5_dead_directions_are_kept_apart_and_floored(self) -> None:
        turn = torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(3)))[0]

        def turned(rows: torch.Tensor) -> torch.Tensor:
            padded: torch.Tensor = torch.nn.functional.pad(rows, (0, 4), value=0.2) @ turn
            return padded

        reference, window = turned(stream(1_000, seed=0)), turned(stream(500, seed=1))
        assert (drifted(reference, window)[P] or 0) > 0.05
        noise = 0.05 * torch.randn(500, 20, generator=torch.Generator().manual_seed(4))
        found = drifted(reference, window + noise)
        assert found["drift_family_p_value{family=geometry}"] == pytest.approx(1 / 10_000)
        assert (found["drift_family_p_value{family=shift}"] or 0) > 0.05
        assert found["drift_variance_ratio"] == pytest.approx(1, abs=0.1)

    def test_6_and_10_what_calibrates_took_no_part_in_the_fit(self) -> None:
        """In few rows for each dimension the map fits its own rows far better than any others."""
        rows = torch.randn(400, 100, generator=torch.Generator().manual_seed(0))
        frozen = Drift.fit([batch(rows)], rows=400)
        torch.testing.assert_close(frozen["mean"], rows[:200].double().mean(0))
        assert int(frozen["reference.keys"].min()) == 20
        fresh = torch.randn(400, 100, generator=torch.Generator().manual_seed(1))
        statistic = Drift(frozen=frozen)
        statistic.update(batch(fresh))
        assert {m.name: m.number or 0 for m in statistic.compute()}[P] > 0.05

    def test_7_within_topics_rows_differ_and_blocks_are_long_all_the_same(self) -> None:
        found = drifted(stream(2_000, seed=0, stay=0.9), stream(1_000, seed=1, stay=0.9), **FAST)
        assert 5 <= (found["drift_decay_length"] or 0) <= 20
        assert (found["drift_blocks{side=window}"] or 99) <= 1_000 / 25

    def test_9_each_family_has_a_share_of_the_level(self) -> None:
        found = drifted(stream(1_000, seed=0), foreign(stream(500, seed=1), 0.1))
        content, shift, geometry, local = (
            found[f"drift_family_p_value{{family={name}}}"] or 0 for name in ("content", "shift", "geometry", "local")
        )
        assert found[P] == pytest.approx(min(1, 3 * content, 6 * shift, 6 * geometry, 3 * local))
        assert content <= 0.004

    def test_11_rows_that_were_fitted_are_left_out_on_both_sides(self) -> None:
        rows = stream(1_000, seed=0)
        again = drifted(rows, rows)
        assert again["drift_known_ratio"] == 0.5
        assert again[P] == 1
        grown = drifted(rows, torch.cat([rows, foreign(stream(500, seed=3), 0.1)]))
        assert grown["drift_rows"] == 1_000
        assert grown["drift_known_ratio"] == pytest.approx(1 / 3)
        assert (grown[P] or 1) < 0.05


class TestFinding:
    @pytest.mark.parametrize(
        ("change", "family", "metric", "size"),
        [
            (lambda rows: foreign(rows, 0.1), "content", "drift_foreign_ratio", 0.05),
            (lambda rows: rows + 0.15, "shift", "drift_centroid_ratio", 0.1),
            (
                lambda rows: rows.mean(0) + (rows - rows.mean(0)) * torch.linspace(1.3, 0.7, DIMENSION),
                "geometry",
                "",
                0,
            ),
            (lambda rows: rows * 1.1, "content", "drift_norm_ratio", 1.05),
        ],
    )
    def test_a_change_is_found_by_its_family_and_sized(
        self, change: Any, family: str, metric: str, size: float
    ) -> None:
        found = drifted(stream(2_000, seed=0), change(stream(1_000, seed=1)))
        assert (found[P] or 1) <= 0.01
        assert (found[f"drift_family_p_value{{family={family}}}"] or 1) <= 0.005
        if metric:
            assert (found[metric] or 0) > size

    def test_the_strangest_rows_and_the_cells_are_named(self) -> None:
        window = stream(500, seed=1)
        window[::10] = stream(50, seed=2, topic=3) + 6
        statistic = Drift(frozen=Drift.fit([batch(stream(1_000, seed=0))], rows=1_000))
        statistic.update(batch(window))
        rows, crowded, gained, lost = statistic.exhibits()
        assert {row[0] for row in crowded.rows} <= set(range(0, 500, 10))
        assert {row[0] for row in rows.rows} <= set(range(0, 500, 10))
        assert sum(float(row[1] or 0) for row in gained.rows) > 0.06
        assert all(row[4] in range(500) for row in gained.rows)
        assert sum(float(row[1] or 0) for row in lost.rows) < 0
        assert all(row[4] in range(500, 1_000) for row in lost.rows)

    def test_a_new_topic_is_found_by_its_neighbourhood_alone(self) -> None:
        window = stream(1_000, seed=1)
        window[::20] = 0.25 * stream(50, seed=2) + 0.4
        found = drifted(stream(2_000, seed=0), window)
        assert found["drift_family_p_value{family=local}"] == 1 / 1_000
        assert (found["drift_family_p_value{family=shift}"] or 0) > 0.05
        assert (found[P] or 1) <= 0.01
        without = drifted(stream(2_000, seed=0), window, local=False)
        assert without["drift_family_p_value{family=local}"] is None
        assert (without["drift_family_p_value{family=shift}"] or 0) > 0.05

    def test_rows_that_come_again_and_again_are_no_evidence(self) -> None:
        """As if they were new, the mean of 100 rows said ten times would be ten times as sure."""
        found = [
            drifted(stream(1_000, seed=2 * seed), stream(100, seed=2 * seed + 1).repeat(10, 1), **FAST)
            for seed in range(20)
        ]
        assert sum((each[P] or 0) <= 0.05 for each in found) <= 3

    def test_a_reference_without_rows_has_no_neighbourhoods(self) -> None:
        rows = stream(1_000, seed=0)
        calibrating = Drift(frozen={name: array for name, array in mapped(rows[:500]).items() if "rows." not in name})
        calibrating.update(batch(rows).take(slice(500, 1_000)))
        bare = Drift(frozen=calibrating.frozen)
        bare.load_state_dict(calibrating.state_without_rows())
        statistic = Drift(frozen=bare.as_reference(500), **FAST)
        statistic.update(batch(stream(500, seed=1)))
        found = {measurement.key: measurement.number for measurement in statistic.compute()}
        assert found["drift_family_p_value{family=local}"] is None
        assert found["drift_family_p_value{family=content}"] is not None
        assert statistic.exhibits()[1].rows == ()
        other = bare.fresh()
        other.update(VectorBatch(stream(300, seed=2), 1_000 + torch.arange(300), source="stream"))
        bare.merge(other)  # the rows of a part are not those of the whole
        assert not len(bare.as_reference(500)["reference.sample.rows"])

    def test_the_same_seed_gives_the_same_p_value(self) -> None:
        reference, window = stream(600, seed=0), stream(300, seed=1)
        assert drifted(reference, window, seed=3) == drifted(reference, window, seed=3)
        assert drifted(reference, window, seed=3)[P] != drifted(reference, window, seed=4)[P]


class TestMisuse:
    def test_rows_without_numbers_have_no_order_and_are_left_out(self) -> None:
        statistic = Drift(frozen=Drift.fit([batch(stream(400, seed=0))], rows=400))
        statistic.update(VectorBatch(stream(300, seed=1)))
        assert {m.name: m.number for m in statistic.compute()}["drift_rows"] == 0

    def test_another_reference_is_refused(self) -> None:
        first, second = (Drift(frozen=Drift.fit([batch(stream(400, seed=seed))], rows=400)) for seed in (0, 1))
        first.update(batch(stream(300, seed=2)))
        with pytest.raises(MergeError, match="Frozen"):
            second.merge(first)
        with pytest.raises(MergeError, match="use the arrays of that state"):
            second.load_state_dict(first.state_dict())

    def test_what_cannot_be_a_reference_is_refused(self) -> None:
        with pytest.raises(UsageError, match="give rows that differ"):
            Drift.fit([batch(torch.ones(400, 4))], rows=400)
        with pytest.raises(UsageError, match="give rows that differ"):
            Drift.fit([], rows=400)
        with pytest.raises(MergeError, match="from number 500 on"):
            Drift.fit([batch(stream(400, seed=0))], rows=1_000)
        with pytest.raises(UsageError, match="give what `fit` returned"):
            Drift(frozen={"mean": torch.zeros(3)})
