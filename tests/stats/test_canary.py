"""What the statistic of fixed texts says of changes that are known."""

from __future__ import annotations

import pytest
import torch

from embedwatch.batch import PairBatch
from embedwatch.core.errors import MergeError, UsageError
from embedwatch.stats.canary import Canary
from tests.canary.spaces import TEXTS, changed, letters


def numbers(change: str, **settings: float) -> dict[str, float | None]:
    statistic = Canary(**settings)  # type: ignore[arg-type]
    torch.manual_seed(0)
    statistic.update(PairBatch(letters(TEXTS), changed(change)(TEXTS), torch.arange(len(TEXTS))))
    return {m.key: m.number for m in statistic.compute()}


def test_the_same_vectors_are_the_same() -> None:
    found = numbers("unchanged")
    assert found["canary_distance{q=1}"] == 0
    assert found["canary_moved_ratio"] == 0
    assert found["canary_overlap_ratio"] == 1
    assert found["canary_offset_ratio"] is None
    assert found["canary_leading_distance"] is None


def test_a_rotation_moves_every_text_and_keeps_the_space() -> None:
    found = numbers("rotated")
    assert found["canary_moved_ratio"] == 1
    assert found["canary_similarity_ratio"] == pytest.approx(1)
    assert found["canary_cka"] == pytest.approx(1)
    assert found["canary_overlap_ratio"] == 1


def test_a_rotation_is_fitted_where_texts_are_enough() -> None:
    assert numbers("rotated")["canary_rotation_ratio"] == pytest.approx(1)
    assert (numbers("other")["canary_rotation_ratio"] or 0) < 0.2
    assert numbers("wider")["canary_rotation_ratio"] is not None
    few = Canary()
    few.update(PairBatch(torch.eye(40), torch.eye(40), torch.arange(40)))
    assert {m.name: m.number for m in few.compute()}["canary_rotation_ratio"] is None
    generator = torch.Generator().manual_seed(0)
    then = torch.randn(300, 5, generator=generator)
    turned = then @ torch.linalg.qr(torch.randn(5, 5, generator=generator)).Q
    statistic = Canary()
    statistic.update(PairBatch(then, turned, torch.arange(300)))
    known = {m.name: m.number for m in statistic.compute()}
    assert known["canary_rotation_ratio"] == pytest.approx(1, abs=1e-6)
    assert known["canary_scaled_rotation_ratio"] == pytest.approx(1, abs=1e-6)


def test_another_dimension_is_measured_and_not_refused() -> None:
    found = numbers("cut")
    assert found["canary_dimension{side=then}"] == 48
    assert found["canary_dimension{side=now}"] == 32
    assert found["canary_leading_distance"] == pytest.approx(0, abs=1e-12)
    assert found["canary_moved_ratio"] is None
    assert (numbers("wider")["canary_leading_distance"] or 0) > 0.1
    assert numbers("padded")["canary_dimension{side=now}"] == 32


def test_precision_is_seen_in_the_values() -> None:
    for grid in ("bfloat16", "float16", "int8"):
        found = numbers(grid)
        assert found[f"canary_grid_ratio{{side=now,grid={grid}}}"] == 1
        assert found[f"canary_grid_ratio{{side=then,grid={grid}}}"] == 0
        assert 1e-9 < (found["canary_distance{q=0.5}"] or 0) < 1e-3


def test_lengths_are_their_own_matter() -> None:
    found = numbers("lengths")
    assert found["canary_moved_ratio"] == 0
    assert (found["canary_norm_ratio{q=1}"] or 0) > 100
    assert found["canary_unit_ratio{side=then}"] == 1
    assert found["canary_unit_ratio{side=now}"] == 0


def test_texts_are_named_with_what_happened_to_them() -> None:
    statistic = Canary()
    now = letters(TEXTS)
    now[5] = torch.nan
    now[[8, 9]] = now[[9, 8]]
    statistic.update(PairBatch(letters(TEXTS), now, torch.arange(len(TEXTS))))
    found = {m.name: m.number for m in statistic.compute()}
    assert found["canary_nonfinite_texts"] == 1
    assert found["canary_displaced_ratio"] == pytest.approx(2 / 63)
    (exhibit,) = statistic.exhibits()
    assert exhibit.rows[0] == (5, None, None)
    assert {row[0] for row in exhibit.rows[1:]} == {8, 9}


def test_each_side_has_its_own_dimension() -> None:
    statistic = Canary()
    statistic.update(PairBatch(torch.randn(3, 4), torch.randn(3, 6), torch.arange(3)))
    with pytest.raises(MergeError, match="left rows must have 4 dimensions like those before, got 6"):
        statistic.update(PairBatch(torch.randn(3, 6), torch.randn(3, 4), torch.arange(3)))


@pytest.mark.parametrize("floor", [0, -1, 3, float("nan")])
def test_a_floor_is_a_distance(floor: float) -> None:
    with pytest.raises(UsageError, match="`floor` must be above 0 and at most 2"):
        Canary(floor=floor)
