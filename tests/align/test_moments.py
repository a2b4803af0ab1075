"""One pass over pairs: what fits and what judges never share a row, and memory does not grow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embedwatch.align.moments import MOST_HELD, AnchorPass, Anchors, read_anchors
from embedwatch.batch import PairBatch
from embedwatch.core.errors import UsageError


def draw(rows: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def read(left: Tensor, right: Tensor, size: int = 512, expected: int | None = -1) -> Anchors:
    batches = [
        PairBatch(left[at : at + size], right[at : at + size], torch.arange(at, min(at + size, len(left))))
        for at in range(0, len(left), size)
    ]
    found = read_anchors(batches, expected=len(left) if expected == -1 else expected)
    assert found is not None
    return found


def test_a_fifth_judges_and_the_rest_fits() -> None:
    found = read(draw(2_000, 16), draw(2_000, 8, 1))
    assert 320 < len(found.held) < 480
    assert len(found.held) + len(found.kept) == 2_000 == found.all.number
    assert found.moments.number == len(found.kept)


def test_moments_are_those_of_unit_rows() -> None:
    left, right = 3 * draw(500, 6) + 1, draw(500, 4, 1)
    found = read(left, right)
    assert torch.allclose(found.all.left_mean, torch.nn.functional.normalize(left).double().mean(0), atol=1e-6)
    assert found.unit[0] < 0.1


def test_what_judges_does_not_depend_on_order_or_size_of_batches() -> None:
    left, right = draw(900, 6), draw(900, 4, 1)
    order = torch.randperm(900, generator=torch.Generator().manual_seed(5))
    first, second = read(left, right), read(left[order], right[order], size=100)
    assert torch.equal(first.held.left, second.held.left)
    assert torch.allclose(first.moments.cross, second.moments.cross, atol=1e-4)
    assert first.content == second.content


@pytest.mark.parametrize("side", ["left", "right"])
def test_equal_rows_are_never_on_both_sides(side: str) -> None:
    left, right = draw(1_000, 6), draw(1_000, 4, 1)
    rows = left if side == "left" else right
    rows[500:] = rows[:500]  # each row twice, with another partner
    found = read(left, right, size=64)
    fitted, judging = ({tuple(row) for row in getattr(each, side).tolist()} for each in (found.kept, found.held))
    assert judging
    assert not fitted & judging


def test_near_twins_judge_nothing() -> None:
    left, right = draw(1_000, 6), draw(1_000, 4, 1)
    left[500:] = left[:500] + 1e-5 * draw(500, 6, 2)  # the same texts in other batches
    right[500:] = right[:500] + 1e-5 * draw(500, 4, 3)
    found = read(left, right)
    scores = torch.nn.functional.normalize(found.held.left) @ torch.nn.functional.normalize(found.kept.left).T
    assert len(found.held) > 10
    assert float(scores.max()) < 0.9999
    assert found.twins > 100


def test_rows_without_numbers_or_direction_are_counted_and_left_out() -> None:
    left, right = draw(400, 6), draw(400, 4, 1)
    left[3, 2], right[9, 1], left[20] = torch.nan, torch.inf, 0.0
    found = read(left, right)
    assert (found.rows, found.left_out, found.all.number) == (400, 3, 397)
    assert bool(torch.isfinite(found.all.cross).all())


def test_many_pairs_take_no_more_than_few() -> None:
    """What is kept is bounded; moments are of all."""
    reading = AnchorPass(8, 4, expected=120_000)
    for at in range(0, 120_000, 8_000):
        reading.add(PairBatch(draw(8_000, 8, at), draw(8_000, 4, at + 1), torch.arange(at, at + 8_000)))
    found = reading.anchors()
    assert 1_500 < len(found.held) <= MOST_HELD
    assert len(found.kept) == 16_384
    assert found.all.number + found.twins >= 119_000


def test_an_unknown_number_of_pairs() -> None:
    found = read(draw(4_000, 6), draw(4_000, 4, 1), expected=None)
    assert 100 < len(found.held) < 320


def test_other_dimensions_are_refused() -> None:
    reading = AnchorPass(3, 2)
    with pytest.raises(UsageError, match="dimensions"):
        reading.add(PairBatch(draw(4, 3), draw(4, 3)))


def test_nothing_was_read() -> None:
    assert read_anchors([]) is None
