"""Every fault keeps the promises of its kind, and does what it says, by known answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError
from embedwatch.core.registry import get, registered
from embedwatch.drills.changes import topics_of
from embedwatch.drills.fault import Fault, Stock, generator_of
from tests.topics import stream

ROWS, SPARE, DIMENSION = 400, 400, 16
FAULTS = sorted(registered(Fault))
PLANNED = ("what_changed",)
"""Checks that faults name and that may not be there."""


def stock(*, unit: bool = False, other: Tensor | None = None) -> Stock:
    make: Callable[..., Tensor] = unit_stream if unit else stream
    centres = stream(8, seed=9)
    return Stock(make(2_000, seed=1).mean(0), centres, make(SPARE, seed=2), make(60, seed=3, topic=4), other)


def unit_stream(count: int, *, seed: int, topic: int | None = None) -> Tensor:
    return torch.nn.functional.normalize(stream(count, seed=seed, topic=topic), dim=1)


def healthy(*, unit: bool = False) -> Tensor:
    return unit_stream(ROWS, seed=0) if unit else stream(ROWS, seed=0)


def broken(name: str, rows: Tensor, strength: float | None = None, seed: int = 0, **options: bool) -> Tensor:
    kind = get(Fault, name)
    wanted = kind.strength if strength is None else strength
    return kind(stock(**options)).apply(rows, generator_of(name, seed), wanted)


def same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.view(torch.int32), other.view(torch.int32))


def cosines(one: Tensor, other: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(one.double(), other.double(), dim=1)


class TestEvery:
    @pytest.mark.parametrize("name", FAULTS)
    @pytest.mark.parametrize("unit", [False, True])
    def test_changes_a_copy_and_nothing_else(self, name: str, unit: bool) -> None:
        kind, rows, held = get(Fault, name), healthy(unit=unit), stock(unit=unit)
        before = [rows.clone(), held.mean.clone(), held.centres.clone(), held.spare.clone(), held.topic.clone()]
        found = kind(held).apply(rows, generator_of(name, 0), kind.strength)
        assert not same_bits(found, rows)
        for left, right in zip(before, (rows, held.mean, held.centres, held.spare, held.topic), strict=True):
            assert torch.equal(left, right)
        assert found.data_ptr() != rows.data_ptr()
        assert found.dtype == rows.dtype
        assert found.shape == rows.shape

    @pytest.mark.parametrize("name", FAULTS)
    def test_the_same_seed_gives_the_same_bits(self, name: str) -> None:
        rows = healthy()
        assert same_bits(broken(name, rows, seed=5), broken(name, rows, seed=5))

    @pytest.mark.parametrize("name", FAULTS)
    def test_works_in_double_precision(self, name: str) -> None:
        assert broken(name, healthy().double()).dtype == torch.float64

    @pytest.mark.parametrize("name", FAULTS)
    def test_every_strength_that_it_lists_makes_sense_and_is_possible(self, name: str) -> None:
        kind, rows = get(Fault, name), healthy()
        assert kind.strength in kind.strengths
        for strength in kind.strengths:
            kind.check_strength(strength)
            fault = kind(stock())
            if not fault.impossible(len(rows), strength):
                found = fault.apply(rows, generator_of(name, 0), strength)
                assert found.shape == rows.shape
                assert name == "nan_rows" or bool(found.isfinite().all())

    @pytest.mark.parametrize("name", FAULTS)
    def test_a_strength_beyond_its_bounds_is_refused_in_one_line(self, name: str) -> None:
        kind = get(Fault, name)
        for wrong in (kind.bounds[0], kind.bounds[1] * 1.01 + 1e-6, -1.0, math.nan, math.inf):
            with pytest.raises(UsageError, match=rf"^`strength` of {name} must be above .* is usual$"):
                kind.check_strength(wrong)

    @pytest.mark.parametrize("name", FAULTS)
    def test_says_what_it_is_and_who_should_see_it(self, name: str) -> None:
        kind = get(Fault, name)
        assert kind.title
        assert kind.measures
        assert kind.unseen.endswith(".")
        assert kind.found_by
        assert set(kind.found_by) <= {*registered(Check), *PLANNED}
        assert kind.told(kind.strength)

    @pytest.mark.parametrize("name", ["nan_rows", "zero_rows", "duplicates", "new_topic", "stale_part", "other_model"])
    def test_hits_its_share_of_any_first_rows(self, name: str) -> None:
        rows = healthy()
        hit = (broken(name, rows, 0.1) != rows).any(1)
        assert int(hit.sum()) == ROWS // 10
        assert [int(part.sum()) for part in hit.split(100)] == [10, 10, 10, 10]


class TestKnownAnswers:
    def test_norms_grow(self) -> None:
        rows = healthy(unit=True)
        assert torch.allclose(broken("norm_growth", rows, 0.05).norm(dim=1), torch.tensor(1.05))

    def test_a_collapse_takes_its_share_of_the_way_to_the_mean(self) -> None:
        rows, mean = healthy(), stock().mean
        found = broken("collapse", rows, 0.3)
        assert torch.allclose((found - mean).norm(dim=1), 0.7 * (rows - mean).norm(dim=1), rtol=1e-4)
        assert torch.allclose(broken("collapse", rows, 1.0), mean.expand_as(rows), atol=1e-5)

    def test_normalised_rows_stay_so_where_normalisation_comes_last(self) -> None:
        rows = healthy(unit=True)
        for name in ("collapse", "truncation", "low_rank", "noise", "other_model"):
            assert torch.allclose(broken(name, rows, unit=True).norm(dim=1), torch.ones(ROWS), atol=1e-5), name

    def test_a_rotation_keeps_distances_and_turns_each_row_by_its_angle(self) -> None:
        rows = healthy()
        found = broken("rotation", rows, 20.0)
        left, right = found.double(), rows.double()
        assert torch.allclose(torch.cdist(left, left), torch.cdist(right, right), atol=1e-5)
        assert torch.allclose(cosines(found, rows), torch.tensor(math.cos(math.radians(20)), dtype=torch.float64))

    def test_in_an_odd_dimension_one_axis_of_a_rotation_stays(self) -> None:
        rows = stream(ROWS, seed=0, dimension=5)
        kind = get(Fault, "rotation")
        found = kind(stock()).apply(rows, generator_of("rotation", 0), 90.0)
        turn = torch.linalg.lstsq(rows.double(), found.double()).solution
        real = torch.linalg.eigvals(turn).real
        assert int((real - 1).abs().lt(1e-4).sum()) == 1
        assert int(real.abs().lt(1e-4).sum()) == 4

    def test_another_model_shares_no_axis_and_keeps_lengths(self) -> None:
        rows = healthy()
        found = broken("other_model", rows)
        assert torch.allclose(found.norm(dim=1), rows.norm(dim=1), rtol=1e-4)
        assert float(cosines(found, rows).abs().mean()) < 0.5
        assert same_bits(found, broken("other_model", rows))

    def test_another_model_takes_the_rows_of_another_source(self) -> None:
        other = torch.full((40, DIMENSION), 7.0)
        fault = get(Fault, "other_model")(stock(other=other))
        found = fault.apply(healthy(), generator_of("other_model", 0), 0.1)
        assert int((found == 7).all(1).sum()) == 40
        assert not fault.paired
        assert fault.impossible(ROWS, 0.5) == "The other source has 40 rows, 200 are needed."
        assert get(Fault, "other_model")(stock()).paired

    def test_truncation_zeroes_the_trailing_dimensions(self) -> None:
        rows = healthy()
        found = broken("truncation", rows, 0.25)
        assert torch.equal(found[:, :12], rows[:, :12])
        assert not found[:, 12:].any()

    def test_low_rank_leaves_the_directions_of_largest_variance(self) -> None:
        rows = healthy()
        found = broken("low_rank", rows, 0.25)
        centred, whole = (found - stock().mean).double(), (rows - stock().mean).double()
        values = torch.linalg.svdvals(centred)
        assert int((values > 1e-4 * values[0]).sum()) == 12
        assert float((whole - centred).square().sum()) < 0.25 * float(whole.square().sum())

    def test_sixteen_bits_of_the_mantissa_make_a_bfloat16_and_thirteen_a_float16(self) -> None:
        rows = healthy()
        assert torch.equal(broken("bf16", rows, 16.0), rows.bfloat16().float())
        assert torch.equal(broken("bf16", rows, 13.0), rows.half().float())

    def test_eight_bits_leave_255_levels_in_each_row(self) -> None:
        rows = healthy()
        found = broken("int8", rows, 8.0)
        levels = found / rows.abs().amax(1, keepdim=True) * 127
        assert torch.allclose(levels, levels.round(), atol=1e-3)
        assert float((found - rows).abs().max()) <= float(rows.abs().max()) / 254 * 1.001
        assert not broken("int8", torch.zeros(4, DIMENSION)).any()

    def test_normalisation_is_left_out_where_it_was_and_put_in_where_not(self) -> None:
        unit = healthy(unit=True)
        found = broken("normalisation", unit, 0.1)
        assert 0.08 < float(found.norm(dim=1).log().std()) < 0.12
        assert torch.allclose(cosines(found, unit), torch.ones(ROWS, dtype=torch.float64))
        assert torch.allclose(broken("normalisation", healthy()).norm(dim=1), torch.ones(ROWS))

    def test_a_new_topic_takes_rows_that_were_held_out_each_once(self) -> None:
        held = stock().topic
        found = broken("new_topic", healthy(), 0.1)
        places = [int((held == row).all(1).nonzero()[0]) for row in found if bool((held == row).all(1).any())]
        assert len(places) == len(set(places)) == ROWS // 10
        assert "60 rows, 80 are needed" in get(Fault, "new_topic")(stock()).impossible(ROWS, 0.2)

    def test_a_lost_topic_leaves_a_hole_and_the_order_of_the_others(self) -> None:
        rows, held = healthy(), stock()
        every = torch.cat([rows, held.spare])
        found = broken("lost_topic", rows, 0.2)
        kept = [int((every == row).all(1).nonzero()[0]) for row in found]
        assert kept == sorted(kept)
        gone = [place for place in range(max(kept)) if place not in kept]
        assert 0.1 * ROWS < len(gone) < 0.35 * ROWS
        centre = min(held.centres, key=lambda point: float((every[gone] - point).norm(dim=1).max()))
        assert float((every[gone] - centre).norm(dim=1).max()) <= float((found - centre).norm(dim=1).min()) + 1e-5

    def test_mixed_segments_halve_the_topics_that_have_many(self) -> None:
        rows, centres = healthy(), stock().centres
        found = broken("mixed_segments", rows, 0.9)
        counts = torch.bincount(topics_of(found, centres), minlength=8) / torch.bincount(
            topics_of(torch.cat([rows, stock().spare]), centres), minlength=8
        ).clamp(min=1)
        few, many = counts.sort().values[:4].mean(), counts.sort().values[4:].mean()
        assert float(few) < 0.3 * float(many)

    @pytest.mark.parametrize(("name", "strength"), [("lost_topic", 0.6), ("mixed_segments", 0.99)])
    def test_what_takes_rows_away_says_how_many_more_it_needs(self, name: str, strength: float) -> None:
        assert "more rows are needed to fill up" in get(Fault, name)(stock()).impossible(ROWS, strength)

    def test_rows_with_nan_zeros_and_repeats(self) -> None:
        rows = healthy()
        assert int(broken("nan_rows", rows, 0.01).isnan().any(1).sum()) == 4
        assert int((broken("zero_rows", rows, 0.01) == 0).all(1).sum()) == 4
        found = broken("duplicates", rows, 0.05)
        repeated = [place for place, row in enumerate(found) if bool((found[:place] == row).all(1).any())]
        assert len(repeated) == 20

    def test_each_id_has_the_vector_of_the_next(self) -> None:
        rows = healthy()
        found = broken("off_by_one", rows)
        assert torch.equal(found[:-1], rows[1:])
        assert torch.equal(found[-1], rows[0])

    def test_half_of_the_rows_are_of_an_older_version(self) -> None:
        rows = healthy()
        old = cosines(broken("stale_part", rows, 0.5), rows)
        assert int((old < 0.99).sum()) == ROWS // 2
        assert torch.allclose(old[old < 0.99], torch.tensor(math.cos(math.radians(20)), dtype=torch.float64))

    def test_noise_has_its_share_of_the_length(self) -> None:
        rows = healthy()
        moved = (broken("noise", rows, 0.1) - rows).norm(dim=1) / rows.norm(dim=1)
        assert float(moved.square().mean().sqrt()) == pytest.approx(0.1, rel=0.05)
