"""What tables are measured by: known answers of factors, freshness, copies, indicators, frequencies, and streams."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from embedwatch.geometry.copies import Sketch, copy_groups
from embedwatch.geometry.frequency import frequent_norms, rank_correlation
from embedwatch.geometry.freshness import norm_spread, spectrum_edge, upper_edge
from embedwatch.geometry.residual import alike_distance, massive_entry
from embedwatch.geometry.scale import factor_between, factors_of_root, root_mean_square
from embedwatch.geometry.untrained import first_direction, measure_indicators, separate


def rows(number: int, dimension: int, seed: int = 0) -> Tensor:
    return torch.randn(number, dimension, generator=torch.Generator().manual_seed(seed))


def test_a_factor_is_found_beside_what_is_added_to_all_rows() -> None:
    table = rows(20, 16) * 0.05
    found = factor_between(table * 4 + rows(1, 16, 1), table)
    assert found is not None
    assert found.value == pytest.approx(4, rel=1e-5)
    assert found.residual < 1e-5
    behind_norm = factor_between(torch.nn.functional.layer_norm(table + rows(1, 16, 1), (16,)), table)
    assert behind_norm is not None
    assert behind_norm.residual > 0.05


@pytest.mark.parametrize("entering", [torch.full((4, 3), torch.nan), torch.ones(4, 3), torch.ones(5, 3)])
def test_no_factor_where_rows_are_alike_no_numbers_or_others(entering: Tensor) -> None:
    assert factor_between(entering, torch.ones(4, 3)) is None


def test_factors_of_root_count_them() -> None:
    assert factors_of_root(math.sqrt(512), 512) == pytest.approx(1)
    assert factors_of_root(512, 512) == pytest.approx(2)
    assert [factors_of_root(value, 512) for value in (None, 0.0, -1.0, math.nan, math.inf)] == [None] * 5
    assert factors_of_root(2.0, 1) is None


def test_root_mean_square_leaves_padding_out() -> None:
    assert root_mean_square(torch.tensor([[0.0, 0.0], [2.0, 2.0], [math.inf, 1.0]])) == pytest.approx(2)
    assert root_mean_square(torch.zeros(3, 2)) is None


@pytest.mark.parametrize("kind", ["normal", "uniform"])
@pytest.mark.parametrize(("number", "dimension"), [(2000, 64), (300, 256), (60, 16)])
def test_drawn_tables_lie_at_the_edge_and_spread_by_chance(kind: str, number: int, dimension: int) -> None:
    table = rows(number, dimension) * 0.02
    if kind == "uniform":
        table = torch.rand(number, dimension, generator=torch.Generator().manual_seed(0)) - 0.5
    edge, spread = spectrum_edge(table), norm_spread(table)
    assert edge is not None
    assert 0.75 < edge < 1.15
    assert spread is not None
    assert spread < 1.2


def test_a_direction_that_rows_share_and_norms_that_differ_are_seen() -> None:
    table = rows(500, 32)
    spiked = table + 3 * rows(500, 1, 1) * rows(1, 32, 2)
    assert (spectrum_edge(spiked) or 0) > 5
    assert (norm_spread(table * torch.linspace(0.5, 2, 500)[:, None]) or 0) > 2
    assert upper_edge(100, 100) == 4
    assert spectrum_edge(torch.zeros(4, 4)) is None
    assert norm_spread(torch.full((4, 4), torch.nan)) is None


def groups(table: Tensor, within: float) -> Tensor:
    sketch = Sketch(table.shape[1])
    for part in table.split(100):
        sketch.add(part)
    return copy_groups(sketch.values(), within=within)


def test_copies_are_found_and_rows_that_only_look_alike_are_not() -> None:
    table = rows(3000, 48)
    table[[5, 700, 2999]] = table[42].clone()
    table[9] = table[8] + 1e-4
    found = groups(table, 0.01 * 48**0.5)
    assert (found >= 0).nonzero()[:, 0].tolist() == [5, 8, 9, 42, 700, 2999]
    assert len({int(found[row]) for row in (5, 42, 700, 2999)}) == 1
    assert int(found[8]) == int(found[9]) != int(found[5])


def test_a_table_of_one_row_repeated_is_one_group() -> None:
    assert set(groups(torch.ones(5000, 8), 1e-3).tolist()) == {0}
    broken = groups(torch.full((10, 8), torch.nan), 1e-3)
    assert set(broken.tolist()) == {-1}


def planted(number: int = 2000, unused: int = 60) -> tuple[Tensor, Tensor]:
    """Return rows in use, of which frequent ones share a direction, and which rows are unused: the last ones."""
    table = rows(number, 32) * torch.linspace(0.8, 1.5, number)[:, None] + 2 * rows(1, 32, 1) * rows(number, 1, 2).abs()
    table[-unused:] = 0.1 * rows(unused, 32, 3) + 0.3 * rows(1, 32, 4)
    return table, torch.arange(number - unused, number)


def chunks(table: Tensor) -> Iterator[Tensor]:
    return iter(table.split(333))


@pytest.mark.parametrize("name", ["cosine", "distance", "inner_cosine", "inner_distance", "norm"])
def test_unused_rows_that_nobody_knows_lie_below_the_limit_of_those_that_are_known(name: str) -> None:
    table, unused = planted()
    known, hidden = unused[:20], unused[20:]
    found = measure_indicators(lambda: chunks(table), len(table), known)
    in_use = torch.ones(len(table), dtype=torch.bool)
    in_use[unused] = False
    separation = separate(found.rows[name], found.known[name], in_use, name=name)
    assert separation.below < 0.01
    assert separation.limit is not None
    assert float((found.rows[name][hidden] <= separation.limit).double().mean()) > 0.7
    assert float((found.rows[name][in_use] <= separation.limit).double().mean()) < 0.01


def test_rows_that_are_as_all_others_give_no_limit() -> None:
    table = rows(500, 16)
    found = measure_indicators(lambda: chunks(table), 500, torch.arange(10))
    everywhere = torch.ones(500, dtype=torch.bool)
    for name, known in found.known.items():
        assert separate(found.rows[name], known, everywhere, name=name).limit is None


@pytest.mark.parametrize("known", [3, 5])
def test_a_few_rows_seldom_seem_apart_by_chance(known: int) -> None:
    tables = (rows(60, 16, seed) for seed in range(60))
    everywhere = torch.ones(60, dtype=torch.bool)
    found = 0
    for table in tables:
        indicators = measure_indicators(lambda table=table: iter([table]), 60, torch.arange(known))
        limits = [
            separate(indicators.rows[name], of, everywhere, name=name).limit for name, of in indicators.known.items()
        ]
        found += any(limit is not None for limit in limits)
    assert found <= 2, "with the bound of many rows it is eight of sixty where three are known"


def test_without_known_rows_there_is_the_norm_alone() -> None:
    table = rows(50, 4)
    table[3] = torch.nan
    found = measure_indicators(lambda: chunks(table), 50, torch.arange(2))
    assert set(found.rows) == {"norm"}
    assert not found.known
    assert bool(found.rows["norm"][3].isnan())


def test_the_first_direction_is_that_of_the_largest_variance() -> None:
    table = rows(800, 12) + 4 * rows(800, 1, 1) * torch.eye(12)[5] + 100
    assert abs(float(first_direction(table)[5])) > 0.98
    assert not bool(first_direction(torch.ones(4, 3)).any())


def test_rank_correlation_is_that_of_scipy_with_ties() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    one, other = rows(200, 1)[:, 0], (rows(200, 1, 1)[:, 0] * 2).round()
    expected = float(stats.spearmanr(one.numpy(), other.numpy()).statistic)
    assert rank_correlation(one, other) == pytest.approx(expected, abs=1e-12)
    assert rank_correlation(one, torch.ones(200)) is None


def test_frequent_tokens_are_those_that_make_half_of_a_text() -> None:
    norms = torch.tensor([3.0, 1.0, 1.0, 1.0, 7.0])
    assert frequent_norms(norms, torch.tensor([100, 10, 10, 10, 0])) == 3
    assert frequent_norms(norms, torch.zeros(5, dtype=torch.int64)) is None


def test_rows_alike_have_no_distance_whatever_their_length() -> None:
    direction = rows(1, 24)
    assert alike_distance(direction * torch.tensor([[1.0], [50.0], [0.01]])) == pytest.approx(0, abs=1e-6)
    assert (alike_distance(rows(400, 24)) or 0) > 0.99
    assert alike_distance(torch.zeros(3, 4)) is None


def test_a_massive_entry_is_named_by_row_and_dimension() -> None:
    stream = rows(30, 16)
    stream[7, 3] = -5000
    found = massive_entry(stream)
    assert found is not None
    assert found[0] == 5000
    assert found[1] > 5000
    assert found[2:] == (7, 3)
    assert massive_entry(torch.zeros(2, 2)) is None
