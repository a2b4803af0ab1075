"""Rows that differ: exact while few, and within the stated error above."""

from __future__ import annotations

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.registry import get
from embedwatch.core.statistic import Statistic
from embedwatch.stats.distinct_rows import BOUND, CAPACITY, DistinctRows


def measured(rows: torch.Tensor) -> dict[str, float | None]:
    statistic = get(Statistic, "distinct_rows")()
    for part in rows.split(1_000):
        statistic.update(VectorBatch(part))
    return {found.name: found.number for found in statistic.compute()}


@pytest.mark.parametrize("distinct", [1, 12, CAPACITY - 1])
def test_exact_below_the_capacity(distinct: int) -> None:
    rows = torch.randn(distinct, 4, generator=torch.Generator().manual_seed(0)).repeat(3, 1)
    expected = {"distinct_rows": distinct, "distinct_rows_ratio": pytest.approx(1 / 3), "distinct_inputs": None}
    assert measured(rows) == expected


@pytest.mark.parametrize("distinct", [CAPACITY, 20_000, 100_000])
def test_within_four_standard_errors_above(distinct: int) -> None:
    rows = torch.randn(distinct, 4, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    found = measured(rows)
    assert found["distinct_rows"] == pytest.approx(distinct, rel=BOUND / (CAPACITY - 2) ** 0.5)
    assert found["distinct_rows_ratio"] == pytest.approx(0.5, rel=BOUND / (CAPACITY - 2) ** 0.5)


def test_zero_rows_and_rows_that_are_no_numbers_do_not_count() -> None:
    rows = torch.eye(4)
    rows[0], rows[1, 2] = 0, torch.nan
    assert measured(rows) == {"distinct_rows": 2, "distinct_rows_ratio": 1.0, "distinct_inputs": None}


def inputs_of(*batches: VectorBatch) -> float | None:
    statistic = DistinctRows()
    for batch in batches:
        statistic.update(batch)
    return {found.name: found.number for found in statistic.compute()}["distinct_inputs"]


def test_inputs_are_counted_where_they_are_known_whatever_the_rows_are() -> None:
    alike, sound = torch.ones(6, 4), torch.eye(4)
    known = VectorBatch(alike, inputs=torch.tensor([7, 7, 8, 9, 9, 9]))
    assert inputs_of(known) == 3
    assert inputs_of(known, VectorBatch(sound)) == 3, "of the others nobody knows"
    assert inputs_of(known, VectorBatch(sound, inputs=torch.tensor([7, 1, 2, 3]))) == 6


def test_inputs_of_rows_that_are_left_out_do_not_count() -> None:
    rows = torch.eye(4)
    rows[0], rows[1, 2] = 0, torch.nan
    assert inputs_of(VectorBatch(rows, inputs=torch.arange(4))) == 2
    assert inputs_of(VectorBatch(torch.zeros(3, 4), inputs=torch.arange(3))) is None


@pytest.mark.parametrize("distinct", [CAPACITY - 1, 20_000])
def test_many_inputs_are_estimated_as_rows_are(distinct: int) -> None:
    batch = VectorBatch(torch.ones(2 * distinct, 1), inputs=torch.arange(distinct).repeat(2))
    exact = distinct < CAPACITY
    assert inputs_of(batch) == pytest.approx(distinct, rel=0 if exact else BOUND / (CAPACITY - 2) ** 0.5)
