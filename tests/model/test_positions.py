"""Schemes that add a vector to each token, against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from embedwatch_model import LearnedPositions, ModelError, NoPositions, SinusoidalPositions, TokenEmbedding


def rms(x: torch.Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def step_matrix(k: float, d_model: int, base: float) -> torch.Tensor:
    """Write R(k) as the docstring states it: one rotation for each frequency."""
    blocks = []
    for i in range(d_model // 2):
        angle = k * base ** (-2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


class TestSinusoidalPositions:
    @pytest.mark.parametrize(("d_model", "base"), [(2, 10_000.0), (16, 10_000.0), (64, 500.0)])
    def test_follows_the_formula(self, d_model: int, base: float) -> None:
        table = SinusoidalPositions(d_model, 50, base=base).table
        for p in (0, 1, 7, 49):
            for i in range(d_model // 2):
                angle = p / base ** (2 * i / d_model)
                assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
                assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)

    def test_stays_exact_far_out(self) -> None:
        table = SinusoidalPositions(8, 100_001).table
        assert table[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-6)

    @pytest.mark.parametrize("k", [1, 5, 40])
    def test_a_step_is_one_rotation_for_all_positions(self, k: int) -> None:
        table = SinusoidalPositions(16, 100).table
        rotation = step_matrix(k, 16, 10_000.0)
        assert torch.allclose(rotation @ rotation.T, torch.eye(16), atol=1e-6)
        assert torch.allclose(table[k:], table[:-k] @ rotation.T, atol=1e-5)

    def test_another_step_is_another_rotation(self) -> None:
        table = SinusoidalPositions(16, 100).table
        assert not torch.allclose(table[5:], table[:-5] @ step_matrix(4, 16, 10_000.0).T, atol=1e-2)

    def test_inner_products_depend_on_the_offset_alone(self) -> None:
        table = SinusoidalPositions(32, 60).table.double()
        gram = table @ table.T
        for k in (0, 1, 13):
            diagonal = gram.diagonal(k)
            assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-5)
        assert torch.allclose(gram.diagonal(), torch.full((60,), 16.0, dtype=torch.float64), atol=1e-5)

    def test_adds_the_same_positions_to_every_sequence(self) -> None:
        positions = SinusoidalPositions(8, 10)
        vectors = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
        assert torch.equal(positions(vectors), vectors + positions.table[:6])

    def test_later_positions_continue_a_cached_sequence(self) -> None:
        positions = SinusoidalPositions(8, 10)
        whole = positions(torch.zeros(1, 10, 8))
        parts = [positions(torch.zeros(1, 4, 8)), positions(torch.zeros(1, 6, 8), torch.arange(4, 10)[None])]
        assert torch.equal(whole, torch.cat(parts, dim=1))

    def test_a_forward_hook_sees_the_sum(self) -> None:
        model = nn.Sequential(TokenEmbedding(9, 8), SinusoidalPositions(8, 4))
        seen: list[torch.Tensor] = []
        handle = model[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
        ids = torch.tensor([[1, 2, 3]])
        model(ids)
        handle.remove()
        assert torch.equal(seen[0], model[0](ids) + model[1].table[:3])

    def test_keeps_the_dtype_and_saves_no_table(self) -> None:
        positions = SinusoidalPositions(8, 10)
        assert positions(torch.zeros(1, 2, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16
        assert not positions.state_dict()
        assert not list(positions.parameters())

    def test_the_table_grows_beyond_its_length(self) -> None:
        short, long = SinusoidalPositions(8, 10), SinusoidalPositions(8, 100)
        assert torch.equal(short(torch.zeros(1, 57, 8)), long(torch.zeros(1, 57, 8)))
        short.reserve(58)
        assert torch.equal(short.table[:58], long.table[:58])

    def test_rows_may_stand_elsewhere(self) -> None:
        positions = SinusoidalPositions(8, 10)
        at = torch.tensor([[0, 0, 1], [4, 5, 6]])
        assert torch.equal(positions(torch.zeros(2, 3, 8), at), positions.table[at])

    @pytest.mark.parametrize(
        ("d_model", "length", "base", "words"),
        [(7, 4, 1e4, "must be even"), (0, 4, 1e4, "at least 1"), (8, 0, 1e4, "at least 1"), (8, 4, 1.0, "above 1")],
    )
    def test_refuses_what_makes_no_table(self, d_model: int, length: int, base: float, words: str) -> None:
        with pytest.raises(ModelError, match=words):
            SinusoidalPositions(d_model, length, base=base)

    def test_repr_says_the_configuration(self) -> None:
        assert repr(SinusoidalPositions(8, 10)) == "SinusoidalPositions(8, length=10, base=10000)"


class TestLearnedPositions:
    def test_adds_its_rows(self) -> None:
        positions = LearnedPositions(8, 10)
        vectors = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(0))
        assert torch.equal(positions(vectors), vectors + positions.table.weight[:6])
        at = torch.tensor([[0, 0, 1], [7, 8, 9]])
        assert torch.equal(positions(torch.zeros(2, 3, 8), at), positions.table.weight[at])

    def test_starts_at_the_spread_that_was_asked_for(self) -> None:
        torch.manual_seed(0)
        table = LearnedPositions(64, 500, std=0.5).table.weight
        assert rms(table) == pytest.approx(0.5, rel=0.02)

    def test_refuses_to_go_beyond_its_length(self) -> None:
        with pytest.raises(ModelError, match=r"at most 10 positions \(learned\), got 11; cut"):
            LearnedPositions(8, 10)(torch.zeros(1, 11, 8))


def test_no_positions_do_nothing() -> None:
    positions = NoPositions()
    vectors, at = torch.randn(2, 3, 8), torch.arange(3)[None]
    assert positions(vectors) is vectors
    assert positions.rotate(vectors, at) is vectors
    assert positions.bias(at, at) is None
