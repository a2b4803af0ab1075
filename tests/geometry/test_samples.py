"""Samples of two streams: neighbourhoods beside sums over blocks, and rows that repeat."""

from __future__ import annotations

import pytest
import torch

from embedwatch.geometry.blocks import Blocks, Columns, block_features
from embedwatch.geometry.comparison import Paired, Side, pair
from embedwatch.geometry.repeats import Contents, damping, distinct, repetition
from embedwatch.geometry.samples import Sample, repeats_damping, scan_samples
from embedwatch.geometry.whitening import Whitening
from embedwatch.hashing import hash_rows
from tests.topics import DIMENSION, stream

TRIES = {"permutations": 199, "seed": 0}


def sample(rows: torch.Tensor, *, start: int = 0, run: int | None = None) -> Sample:
    return Sample(start + torch.arange(len(rows)), hash_rows(rows), rows, run)


def paired(left: torch.Tensor, right: torch.Tensor, *, length: float = 1.0) -> Paired:
    eye = torch.eye(DIMENSION).double()
    by = Whitening(torch.zeros(DIMENSION).double(), eye, torch.ones(DIMENSION).double(), dead=0)
    sides = []
    for rows in (left, right):
        ids = torch.arange(len(rows))
        blocks = Blocks(ids, torch.ones_like(ids), block_features(rows, rows.norm(dim=1), by, 1.0))
        sides.append(Side(blocks, 1, length, torch.zeros(DIMENSION)))
    return pair(sides[0], sides[1], Columns(DIMENSION))


class TestRepeats:
    def test_a_stream_that_repeats_is_worth_as_much_as_what_it_repeats(self) -> None:
        """100 rows ten times over: the variance of their mean is that of 100 rows, ten times that of 1,000."""
        blocks = torch.arange(1_000) // 10
        again = Contents(torch.arange(100).repeat(10), blocks)
        other = Contents(torch.arange(1_000) + 500, blocks)
        assert repetition(other, again, (1_000, 1_000)) == pytest.approx((1, 10), abs=0.1)
        assert repetition(again, other, (1_000, 1_000)) == pytest.approx((10, 1), abs=0.1)
        assert repetition(other, again, (1_000, 10_000)) == pytest.approx((1, 100), rel=0.1)  # a sample of more of it

    def test_what_is_popular_on_both_sides_is_no_repetition(self) -> None:
        generator, blocks = torch.Generator().manual_seed(0), torch.arange(4_000) // 10
        sides = [Contents((torch.rand(4_000, generator=generator) ** 3 * 500).long(), blocks) for _ in range(2)]
        assert max(repetition(sides[0], sides[1], (4_000, 4_000))) < 1.5
        assert repetition(sides[0], Contents(-1 - torch.arange(4_000), blocks), (4_000, 4_000))[0] > 20

    def test_repeats_within_a_block_are_what_blocks_are_for(self) -> None:
        once = torch.arange(100)
        bursts = Contents(once.repeat_interleave(10), once.repeat_interleave(10))
        assert repetition(bursts, Contents(once + 100, once), (1_000, 100)) == (1, 1)

    def test_one_block_and_no_row_say_nothing(self) -> None:
        nothing = Contents(torch.zeros(0).long(), torch.zeros(0).long())
        assert repetition(nothing, nothing, (0, 0)) == (1, 1)
        assert repetition(Contents(torch.ones(5).long(), torch.ones(5).long()), nothing, (5, 0)) == (1, 1)

    def test_damping_by_hand(self) -> None:
        assert damping(1.0, 1.0, (10, 1_000)) == 1
        assert damping(1.0, 3.0, (1_000, 1_000)) == pytest.approx(0.5**0.5)

    def test_one_row_of_each_content_is_kept_from_either_side(self) -> None:
        content = torch.arange(500).repeat(2)
        kept = distinct(content, seed=1)
        assert torch.equal(content[kept].sort().values, torch.arange(500))
        assert 200 < int((kept < 500).sum()) < 300
        assert len(distinct(torch.zeros(0).long(), seed=0)) == 0


class TestScan:
    def test_a_new_topic_is_found_and_its_rows_are_the_crowded_ones(self) -> None:
        left, right = stream(900, seed=1), stream(600, seed=2)
        new = torch.arange(0, 600, 15)
        right[new] = 4 + 0.1 * stream(40, seed=3)
        found = scan_samples(sample(left), sample(right), paired(left, right), **TRIES)
        assert found is not None
        assert found.p_value == 1 / 200
        assert {number for number, _ in found.most_crowded(40)} == set(new.tolist())

    def test_rows_of_one_source_are_as_often_strange_as_they_may_be(self) -> None:
        found = []
        for seed in range(30):
            left, right = stream(400, seed=2 * seed), stream(300, seed=2 * seed + 1)
            scanned = scan_samples(sample(left), sample(right), paired(left, right), **TRIES)
            found.append(1.0 if scanned is None else scanned.p_value)
        assert sum(each <= 0.1 for each in found) <= 7
        assert min(found) < 0.5 < max(found)

    def test_rows_that_repeat_are_seen_once(self) -> None:
        left, right = stream(600, seed=1), stream(300, seed=2)
        right[::5] = right[0].clone()
        found = scan_samples(sample(left), sample(right), paired(left, right), **TRIES)
        assert found is not None
        assert found.p_value > 0.05
        assert len(found.numbers) <= 241

    def test_the_same_rows_on_both_sides_do_not_differ(self) -> None:
        rows = stream(600, seed=1)
        found = scan_samples(sample(rows), sample(rows), paired(rows, rows), **TRIES)
        assert found is not None
        assert found.p_value > 0.05

    def test_blocks_longer_than_the_runs_that_were_sampled_are_not_asked(self) -> None:
        rows = stream(1_200, seed=1)
        long = paired(rows, rows, length=10.0)
        assert long.span == 50
        parts = sample(rows), sample(rows, run=40)
        assert scan_samples(parts[0], parts[1], long, **TRIES) is None
        assert scan_samples(parts[0], sample(rows, run=50), long, **TRIES) is not None

    def test_without_rows_or_with_few_blocks_there_is_no_answer(self) -> None:
        rows = stream(300, seed=1)
        both = paired(rows, rows)
        there, without = sample(rows), sample(rows)._replace(rows=rows[:0])
        assert scan_samples(there, without, both, **TRIES) is None
        assert scan_samples(there, sample(rows[:90]), both, **TRIES) is None
        assert not len(Sample.joined(there, without).rows)
        assert len(Sample.joined(there, there).rows) == 600

    def test_repeats_shorten_what_is_observed(self) -> None:
        left, right = stream(1_000, seed=0), stream(100, seed=1).repeat(10, 1)
        found = repeats_damping(sample(left), sample(right), paired(left, right))
        assert found == pytest.approx((2 / 11) ** 0.5, rel=0.02)
        assert repeats_damping(sample(left), sample(left), paired(left, left)) == 1
