"""Repetition, by hand: n-grams counted, loops of a known period, stretches that hold the same tokens."""

from __future__ import annotations

import math

import pytest
import torch

from embedwatch.core.errors import UsageError
from embedwatch.geometry.position_grid import grid_cosines
from embedwatch.geometry.prompt_drift import prompt_cosines
from embedwatch.geometry.repetition import Loop, alike_stretches, distinct_share, find_loop, repeated_share


def test_rep_n_counts_what_came_before() -> None:
    assert repeated_share([1, 2, 1, 2, 1], 1) == pytest.approx(3 / 5)
    assert repeated_share([1, 2, 1, 2, 1], 2) == pytest.approx(2 / 4)  # 12 21 12 21
    assert repeated_share([1, 2, 3, 4], 4) == 0
    assert repeated_share([1, 2, 3], 4) is None
    assert repeated_share([7] * 103, 4) == pytest.approx(0.99)


def test_distinct_n_is_over_all_texts_and_not_over_their_borders() -> None:
    assert distinct_share([[1, 2], [3, 4]], 2) == 1  # 12 34, and no 23
    assert distinct_share([[1, 2, 3], [1, 2, 4]], 2) == pytest.approx(3 / 4)
    assert distinct_share([[1], []], 2) is None


@pytest.mark.parametrize("period", [1, 2, 7, 20])
@pytest.mark.parametrize("cut", [0, 1])
def test_a_loop_is_found_with_its_period_and_length(period: int, cut: int) -> None:
    repeats = max(4, 14 // period + 1)
    turn = list(range(100, 100 + period)) * repeats
    text = [*range(10), *turn[: len(turn) - cut]]
    assert find_loop(text) == Loop(period, len(turn) - cut)


def test_what_is_no_loop() -> None:
    assert find_loop([]) is None
    assert find_loop([1, 2, 3, 4, 5, 6] * 2) is None  # twice
    assert find_loop([*range(20), 5, 5, 5]) is None  # three short words
    assert find_loop([1, 2, 3] * 10 + [9]) is None  # it was left


def test_stretches_are_compared_that_do_not_touch() -> None:
    same, other = [1, 2, 3, 4], [5, 6, 7, 8]
    assert alike_stretches(same + other + same, 4) == 1  # the first and the third
    assert alike_stretches(same + same + other, 4) == 0
    assert alike_stretches(same + same, 4) is None


def test_the_cosine_with_ones_own_prompt_stands_beside_that_with_others() -> None:
    prompts = torch.eye(3)
    stretches = torch.stack([torch.stack([prompts[place], prompts[(place + 1) % 3]]) for place in range(3)])
    own, others = prompt_cosines(prompts, stretches)
    assert own.tolist() == [[1.0, 0.0]] * 3
    assert others.tolist() == [[0.0, 0.5]] * 3
    own, others = prompt_cosines(prompts[:1], stretches[:1])
    assert own.tolist() == [[1.0, 0.0]]
    assert others.isnan().all()
    assert prompt_cosines(prompts, torch.zeros(3, 1, 3))[0].isnan().all()


def test_a_grid_is_told_from_a_line() -> None:
    places = torch.arange(64.0)
    line = torch.stack([(places / 10).sin(), (places / 10).cos()], 1)
    grid = grid_cosines(line, 8, 8)
    assert grid.wrap > 0.9  # the end of a row is beside the start of the next
    assert grid.across > grid.down
    rows, columns = places // 8, places % 8
    table = torch.stack([(rows / 3).sin(), (rows / 3).cos(), (columns / 3).sin(), (columns / 3).cos()], 1)
    grid = grid_cosines(table, 8, 8)
    assert grid.across == pytest.approx(grid.down)
    assert grid.across > 0.8 > 0.2 > grid.wrap
    assert grid.axes == pytest.approx(1.0)
    drawn = grid_cosines(torch.randn(64, 512, generator=torch.Generator().manual_seed(0)), 8, 8)
    assert drawn.axes == pytest.approx(14 / 63, abs=0.02)
    assert abs(drawn.across) < 0.05
    assert math.isnan(grid_cosines(torch.ones(4, 2), 2, 2).axes)
    with pytest.raises(UsageError, match="leave out the row of a class token"):
        grid_cosines(torch.ones(65, 2), 8, 8)
