"""Maps from cross-moments, beside independent implementations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from embedwatch.core.errors import UsageError
from embedwatch.geometry.alignment import (
    Affine,
    PairMoments,
    low_rank_ridge,
    norm_ratio,
    orthogonal,
    procrustes,
    ridge,
)

WIDE = torch.float64


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=WIDE, generator=torch.Generator().manual_seed(seed))


class TestProcrustes:
    def test_agrees_with_scipy(self) -> None:
        from scipy.linalg import orthogonal_procrustes

        left, right = draw(200, 12), draw(200, 12, seed=1)
        wanted, _ = orthogonal_procrustes(left.numpy(), right.numpy())
        assert np.abs(procrustes(left.T @ right).numpy() - wanted).max() < 1e-5

    @pytest.mark.parametrize(("width", "other"), [(12, 5), (5, 12)])
    def test_maps_between_dimensions_keep_orthonormality_on_the_smaller_side(self, width: int, other: int) -> None:
        found = procrustes(draw(200, width).T @ draw(200, other, seed=1))
        gram = found.T @ found if width > other else found @ found.T
        assert torch.allclose(gram, torch.eye(5, dtype=WIDE), atol=1e-9)
        assert not orthogonal(found)

    def test_finds_the_turn_of_a_turned_space(self) -> None:
        left = draw(50, 6)
        turn = torch.linalg.qr(draw(6, 6, seed=2)).Q
        found = procrustes(left.T @ (left @ turn))
        assert torch.allclose(found, turn, atol=1e-9)
        assert orthogonal(found)

    def test_directions_that_no_row_fills_are_not_mapped(self) -> None:
        left = draw(4, 10)  # four rows fill four directions
        found = procrustes(left.T @ draw(4, 10, seed=1))
        assert int(torch.linalg.matrix_rank(found)) == 4
        beyond = torch.linalg.svd(left).Vh[4:]
        assert float((beyond @ found).abs().max()) < 1e-9


class TestMoments:
    def test_parts_of_any_size_are_the_whole(self) -> None:
        left, right = draw(300, 7) + 100, draw(300, 5, seed=1) - 50
        whole = PairMoments.of(left, right)
        parts = PairMoments.empty(7, 5)
        for start, stop in ((0, 1), (1, 200), (200, 200), (200, 300)):
            parts = parts.merged(PairMoments.of(left[start:stop], right[start:stop]))
        assert parts.number == 300
        for name in PairMoments._fields[1:]:
            assert torch.allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-9), name

    def test_a_mean_far_off_costs_no_digits(self) -> None:
        left = draw(4_000, 3).float() * 1e-3 + 1  # a spread of a thousandth, in float32
        centred = left.double() - left.double().mean(0)
        found = PairMoments.of(left, left)
        assert torch.allclose(found.cross, centred.T @ centred, rtol=1e-4)

    def test_uncentred(self) -> None:
        left, right = draw(40, 3) + 2, draw(40, 4, seed=1) + 1
        assert torch.allclose(PairMoments.of(left, right).uncentred, left.T @ right, atol=1e-9)

    def test_norm_ratio(self) -> None:
        rows = draw(40, 3) + 5
        assert norm_ratio(PairMoments.of(rows, 3 * rows)) == pytest.approx(3)
        assert norm_ratio(PairMoments.of(torch.ones(4, 3, dtype=WIDE), rows[:4])) == 1.0


class TestRidge:
    def test_agrees_with_scikit_learn(self) -> None:
        from sklearn.linear_model import Ridge

        left, right = draw(60, 7) + 3, draw(60, 4, seed=1) - 1
        wanted = Ridge(alpha=2.5).fit(left.numpy(), right.numpy())
        found = ridge(PairMoments.of(left, right), 2.5)
        assert np.abs(found.numpy() - wanted.coef_.T).max() < 1e-8

    def test_is_drawn_to_its_anchor(self) -> None:
        left, right, anchor = draw(60, 7), draw(60, 4, seed=1), draw(7, 4, seed=2)
        found = ridge(PairMoments.of(left, right), 1e9, anchor)
        assert torch.allclose(found, anchor, atol=1e-5)

    def test_low_rank_has_its_rank_and_ends_at_the_whole(self) -> None:
        moments = PairMoments.of(draw(60, 7), draw(60, 4, seed=1))
        assert int(torch.linalg.matrix_rank(low_rank_ridge(moments, 1.0, 2))) == 2
        assert torch.allclose(low_rank_ridge(moments, 1.0, 4), ridge(moments, 1.0), atol=1e-9)

    def test_strength_must_be_above_zero(self) -> None:
        with pytest.raises(UsageError, match="must be above 0, got 0"):
            ridge(PairMoments.of(draw(6, 2), draw(6, 2)), 0)


def test_an_affine_map_gives_unit_rows_whatever_the_length_of_its_input() -> None:
    fitted = Affine(draw(3, 2), draw(2, seed=1))
    rows = draw(5, 3, seed=2)
    assert torch.allclose(fitted.apply(rows), fitted.apply(7 * rows))
    assert torch.allclose(fitted.apply(rows).norm(dim=1), torch.ones(5, dtype=WIDE))
