"""What faults share, by known answers."""

from __future__ import annotations

import torch

from embedwatch.drills.changes import are_unit, chosen, kept_unit, random_basis, thinned, topics_of, turned
from embedwatch.drills.fault import generator_of


def test_rows_of_length_one() -> None:
    rows = torch.tensor([[0.6, 0.8], [1.0, 0.0]])
    assert are_unit(rows)
    assert not are_unit(2 * rows)
    assert not are_unit(rows[:0])
    assert torch.allclose(kept_unit(3 * rows, rows), rows)
    assert torch.equal(kept_unit(3 * rows, 2 * rows), 3 * rows)


def test_a_basis_is_orthogonal_and_its_own_for_each_seed() -> None:
    basis = random_basis(7, generator_of("basis", 0))
    assert torch.allclose(basis @ basis.T, torch.eye(7, dtype=torch.float64))
    assert not torch.allclose(basis, random_basis(7, generator_of("basis", 1)))


def test_a_half_turn_is_minus_the_rows() -> None:
    rows = torch.randn(5, 4, generator=generator_of("rows", 0))
    assert torch.allclose(turned(rows, generator_of("turn", 0), 180.0), -rows, atol=1e-6)


def test_one_row_of_each_stretch_is_chosen() -> None:
    hit = chosen(torch.zeros(1_000, 2), generator_of("hit", 0), 0.02)
    assert [int(part.sum()) for part in hit.split(50)] == [1] * 20
    assert int(chosen(torch.zeros(10, 2), generator_of("hit", 0), 0.001).sum()) == 1
    assert bool(chosen(torch.zeros(10, 2), generator_of("hit", 0), 1.0).all())
    assert not len(chosen(torch.zeros(0, 2), generator_of("hit", 0), 0.5))


def test_the_nearest_centre_and_what_stays() -> None:
    rows, spare = torch.tensor([[0.0], [9.0], [1.0]]), torch.tensor([[8.0], [2.0]])
    topics = topics_of(torch.cat([rows, spare]), torch.tensor([[0.0], [10.0]]))
    assert topics.tolist() == [0, 1, 0, 1, 0]
    assert thinned(rows, spare, topics == 0)[:, 0].tolist() == [0.0, 1.0, 2.0]


def test_generators_of_one_name_and_seed_agree_and_others_do_not() -> None:
    drawn = {
        (name, seed): float(torch.rand(1, generator=generator_of(name, seed)))
        for name in ("rotation", "noise")
        for seed in (0, 1)
    }
    assert len(set(drawn.values())) == 4
    assert drawn["noise", 1] == float(torch.rand(1, generator=generator_of("noise", 1)))
