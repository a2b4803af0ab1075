"""Rows that differ: exact while few, and within the stated error above."""

from __future__ import annotations

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.registry import get
from embedwatch.core.statistic import Statistic
from embedwatch.stats.distinct_rows import BOUND, CAPACITY


def measured(rows: torch.Tensor) -> dict[str, float | None]:
    statistic = get(Statistic, "distinct_rows")()
    for part in rows.split(1_000):
        statistic.update(VectorBatch(part))
    return {found.name: found.number for found in statistic.compute()}


@pytest.mark.parametrize("distinct", [1, 12, CAPACITY - 1])
def test_exact_below_the_capacity(distinct: int) -> None:
    rows = torch.randn(distinct, 4, generator=torch.Generator().manual_seed(0)).repeat(3, 1)
    assert measured(rows) == {"distinct_rows": distinct, "distinct_rows_ratio": pytest.approx(1 / 3)}


@pytest.mark.parametrize("distinct", [CAPACITY, 20_000, 100_000])
def test_within_four_standard_errors_above(distinct: int) -> None:
    rows = torch.randn(distinct, 4, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    found = measured(rows)
    assert found["distinct_rows"] == pytest.approx(distinct, rel=BOUND / (CAPACITY - 2) ** 0.5)
    assert found["distinct_rows_ratio"] == pytest.approx(0.5, rel=BOUND / (CAPACITY - 2) ** 0.5)


def test_zero_rows_and_rows_that_are_no_numbers_do_not_count() -> None:
    rows = torch.eye(4)
    rows[0], rows[1, 2] = 0, torch.nan
    assert measured(rows) == {"distinct_rows": 2, "distinct_rows_ratio": 1.0}
