"""The duplicates estimate beyond what is counted one by one: unbiased within its stated error, whatever is repeated."""

from __future__ import annotations

import pytest
import torch

from embedwatch.batch import VectorBatch
from embedwatch.core.registry import get
from embedwatch.core.statistic import Statistic

CASES = {
    "no repeats": [(300_000, 1)],
    "pairs": [(100_000, 1), (60_000, 2)],
    "many of middling frequency": [(10_000, 20), (150_000, 1)],
    "everything ten times": [(70_000, 10)],
    "a few very often": [(5, 8_000), (200_000, 1)],
    "one row, one percent": [(1, 2_500), (250_000, 1)],
    "a block of half a percent": [(1_500, 2), (297_000, 1)],
}


@pytest.mark.parametrize("case", CASES)
def test_within_four_standard_errors(case: str) -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(count, 3, generator=generator).repeat(times, 1) for count, times in CASES[case]]
    rows = torch.cat(parts)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    truth = 1 - sum(count for count, _ in CASES[case]) / len(rows)
    statistic = get(Statistic, "duplicates")()  # type: ignore[type-abstract]
    for part in rows.split(50_000):
        statistic.update(VectorBatch(part))
    (found,) = statistic.compute()
    assert found.error is not None
    assert 0 < found.error < 0.005
    assert found.number == pytest.approx(truth, abs=4 * found.error)
