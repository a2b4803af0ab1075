"""Two spaces of the same items: known answers, and independent implementations."""

from __future__ import annotations

import pytest
import torch

from embedwatch.geometry.grids import GRIDS, on_grid
from embedwatch.geometry.pairs import (
    cosine_distances,
    debiased_cka,
    displaced,
    leading,
    neighbour_overlap,
    offset_share,
    similarity_kept,
    unit,
    used_width,
)
from embedwatch.geometry.procrustes import effective_rows, fit_rotation, held_out

N, D = 60, 20


def rows(seed: int, count: int = N, dimension: int = D) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    spread = torch.linspace(2, 0.1, dimension, dtype=torch.float64)
    return unit(torch.randn(count, dimension, generator=generator, dtype=torch.float64) * spread)


def turn(seed: int = 9, dimension: int = D) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)).Q


def test_a_rotation_keeps_all_but_the_coordinates() -> None:
    left = rows(0)
    right = left @ turn()
    overlap = neighbour_overlap(left, right, 5)
    assert overlap is not None
    assert overlap.share == 1
    assert similarity_kept(left, right) == pytest.approx(1)
    assert debiased_cka(left, right) == pytest.approx(1)
    explained = held_out(left, right)
    assert explained is not None
    assert explained.rotation == pytest.approx(1)
    assert float(cosine_distances(left, right).min()) > 0.01


def test_unrelated_rows_share_nothing_even_where_they_are_few() -> None:
    found = [debiased_cka(rows(seed, 40, 200), rows(seed + 50, 40, 200)) for seed in range(20)]
    assert abs(sum(each or 0 for each in found) / 20) < 0.02
    assert similarity_kept(rows(1), rows(2)) == 0
    explained = held_out(rows(1), rows(2))
    assert explained is not None
    assert explained.rotation < 0.1


def test_debiased_cka_is_the_mean_over_quadruples() -> None:
    """HSIC₁ is the U-statistic of its kernel of four rows (Song et al. 2012): here by all of them."""
    from itertools import permutations

    left, right = rows(3, 7, 4), rows(4, 7, 3)
    k, el = left @ left.T, right @ right.T

    def hsic(a: torch.Tensor, b: torch.Tensor) -> float:
        every = [float(a[i, j] * (b[i, j] + b[q, r] - 2 * b[i, q])) for i, j, q, r in permutations(range(len(a)), 4)]
        return sum(every) / len(every)

    assert debiased_cka(left, right) == pytest.approx(hsic(k, el) / (hsic(k, k) * hsic(el, el)) ** 0.5)


def test_chance_is_what_permutations_come_to() -> None:
    left, right = rows(5), rows(5) + 0.2 * rows(6)
    known = neighbour_overlap(left, unit(right), 5)
    assert known is not None
    generator = torch.Generator().manual_seed(0)
    found = [neighbour_overlap(left, unit(right)[torch.randperm(N, generator=generator)], 5) for _ in range(300)]
    assert sum(each.share for each in found if each) / 300 == pytest.approx(known.chance, rel=0.03)
    assert known.chance == pytest.approx(5 / (N - 1))
    assert known.share > 3 * known.chance


def test_twins_are_neighbours_in_any_order() -> None:
    left = rows(7, 20).repeat(3, 1)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    first, second = neighbour_overlap(left, left, 1), neighbour_overlap(left[order], left[order], 1)
    assert first == second
    assert first is not None
    assert first.share == 1


def test_the_rotation_is_that_of_scipy() -> None:
    scipy_linalg = pytest.importorskip("scipy.linalg")
    left, right = rows(8), rows(8) @ turn() + 0.05 * rows(9)
    x, y = left - left.mean(0), right - right.mean(0)
    wanted, scale = scipy_linalg.orthogonal_procrustes(x.numpy(), y.numpy())
    found = fit_rotation(left, right)
    assert torch.allclose(found.matrix, torch.from_numpy(wanted), atol=1e-8)
    assert found.scale == pytest.approx(scale / float(x.square().sum()))


def test_few_rows_are_not_overfitted() -> None:
    """In sample, a rotation of 30 rows in 200 dimensions explains much of nothing; so it is not asked."""
    left, right = rows(1, 30, 200), rows(2, 30, 200)
    assert held_out(left, right) is None
    low = rows(3, 200, 4) @ turn(dimension=200)[:4]
    assert effective_rows(low) < 4.01
    explained = held_out(low, low @ turn(3, 200))
    assert explained is not None
    assert explained.rotation == pytest.approx(1)


def test_a_common_offset_is_told_from_movement_of_each() -> None:
    left = rows(0)
    step = torch.zeros(D, dtype=torch.float64)
    step[3] = 0.2
    assert offset_share(left, left + step) == pytest.approx(1)
    alone = offset_share(left, left + 0.1 * rows(1))
    assert alone is not None
    assert alone < 0.1
    assert offset_share(left, left) is None


def test_leading_dimensions_and_what_is_used_of_them() -> None:
    left = rows(0)
    assert leading(left, unit(left[:, :8])) == pytest.approx(0, abs=1e-15)
    padded = torch.nn.functional.pad(left[:, :8], (0, D - 8))
    assert used_width(padded) == 8
    assert leading(left, unit(padded)) == pytest.approx(0, abs=1e-15)
    assert (leading(left, rows(1, N, 8)) or 0) > 0.1
    assert leading(left, torch.zeros(N, 3, dtype=torch.float64)) is None


def test_vectors_of_another_are_found() -> None:
    left = rows(0)
    right = left.clone()
    right[[2, 3]] = left[[3, 2]]
    right[7] = rows(1)[7]
    assert displaced(left, right, 1e-9).nonzero()[:, 0].tolist() == [2, 3]


@pytest.mark.parametrize("grid", GRIDS)
def test_a_row_is_on_the_grid_that_it_was_rounded_to(grid: str) -> None:
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(50, 64, generator=generator)
    step = plain.abs().amax(1, keepdim=True) / 127
    rounded = {
        "bfloat16": plain.bfloat16().float(),
        "float16": plain.half().float(),
        "int8": (plain / step).round() * step,
        "binary": plain.sign() * plain.abs().mean(1, keepdim=True),
    }
    assert bool(on_grid(rounded[grid], grid).all())
    assert not bool(on_grid(plain, grid).any())
    finer = {"binary": "int8", "int8": "bfloat16", "bfloat16": "float16"}.get(grid)
    assert finer is None or not bool(on_grid(rounded[finer], grid).any())


def test_integers_and_an_offset_are_a_grid_of_256_levels_and_wider_ones_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    whole = torch.randint(-128, 128, (20, 384), generator=generator).float()
    assert bool(on_grid(whole, "int8").all())
    assert bool(on_grid(0.013 * whole + 4.2, "int8").all())
    assert not bool(on_grid(torch.randint(-900, 900, (20, 384), generator=generator).float(), "int8").any())
