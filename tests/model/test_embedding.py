"""Token embedding and sinusoidal positions against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from embedwatch_model import SinusoidalPositions, TokenEmbedding


def rms(x: torch.Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


def step_matrix(k: float, d_model: int, base: float) -> torch.Tensor:
    """Write R(k) as the docstring states it: one rotation for each frequency."""
    blocks = []
    for i in range(d_model // 2):
        angle = k * base ** (-2 * i / d_model)
        blocks.append(torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]))
    return torch.block_diag(*blocks)


class TestTokenEmbedding:
    def test_looks_rows_up_and_scales_them(self) -> None:
        embedding = TokenEmbedding(11, 16)
        ids = torch.tensor([[3, 3, 10], [0, 1, 2]])
        assert torch.equal(embedding(ids), embedding.weight[ids] * 4.0)

    def test_scaling_can_be_switched_off(self) -> None:
        embedding = TokenEmbedding(11, 16, scaled=False)
        assert torch.equal(embedding(torch.arange(11)[None]), embedding.weight[None])

    def test_agrees_with_torch_embedding(self) -> None:
        ours, theirs = TokenEmbedding(50, 64, scaled=False), nn.Embedding(50, 64)
        theirs.load_state_dict(ours.tokens.state_dict())
        ids = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
        assert torch.equal(ours(ids), theirs(ids))

    @pytest.mark.parametrize("d_model", [64, 512])
    def test_starts_with_unit_rows_and_unit_rms_after_scaling(self, d_model: int) -> None:
        torch.manual_seed(0)
        embedding = TokenEmbedding(2_000, d_model)
        assert rms(embedding.weight) == pytest.approx(d_model**-0.5, rel=0.01)
        assert embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, rel=0.01)
        assert rms(embedding(torch.arange(2_000)[None])) == pytest.approx(1.0, rel=0.01)

    def test_without_scaling_positions_drown_the_tokens(self) -> None:
        torch.manual_seed(0)
        ids = torch.arange(512)[None]
        positions = rms(SinusoidalPositions(512, 512).table)
        assert positions == pytest.approx(math.sqrt(0.5), rel=1e-5)
        assert 1 < rms(TokenEmbedding(512, 512)(ids)) / positions < 2
        assert rms(TokenEmbedding(512, 512, scaled=False)(ids)) / positions < 0.07

    def test_gives_unit_logits_as_a_tied_projection(self) -> None:
        torch.manual_seed(0)
        embedding = TokenEmbedding(4_000, 256)
        hidden = torch.randn(32, 256)
        assert (hidden @ embedding.weight.T).std().item() == pytest.approx(1.0, rel=0.02)

    def test_the_weight_is_the_one_parameter(self) -> None:
        embedding = TokenEmbedding(7, 4)
        assert [parameter is embedding.weight for parameter in embedding.parameters()] == [True]
        before = embedding.weight
        embedding.reset_parameters()
        assert embedding.weight is before  # a tie survives

    def test_gradients_reach_only_the_rows_that_were_used(self) -> None:
        embedding = TokenEmbedding(5, 4)
        embedding(torch.tensor([[1, 3, 3]])).sum().backward()
        grad = embedding.weight.grad
        assert grad is not None
        assert grad.abs().sum(1).gt(0).tolist() == [False, True, False, True, False]
        assert torch.equal(grad[3], 2 * grad[1])

    def test_repr_says_the_scale(self) -> None:
        assert "scale=8" in repr(TokenEmbedding(7, 64))

    @pytest.mark.parametrize(("vocabulary", "d_model"), [(0, 4), (4, 0), (-1, 4)])
    def test_refuses_sizes_below_one(self, vocabulary: int, d_model: int) -> None:
        with pytest.raises(ValueError, match="must be at least 1"):
            TokenEmbedding(vocabulary, d_model)


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

    def test_an_offset_continues_a_cached_sequence(self) -> None:
        positions = SinusoidalPositions(8, 10)
        whole = positions(torch.zeros(1, 10, 8))
        parts = [positions(torch.zeros(1, 4, 8)), positions(torch.zeros(1, 6, 8), offset=4)]
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

    @pytest.mark.parametrize(("offset", "length"), [(0, 11), (8, 3), (-1, 2)])
    def test_refuses_positions_outside_the_table(self, offset: int, length: int) -> None:
        with pytest.raises(ValueError, match="within the 10 positions"):
            SinusoidalPositions(8, 10)(torch.zeros(1, length, 8), offset=offset)

    @pytest.mark.parametrize(
        ("d_model", "length", "base", "words"),
        [(7, 4, 1e4, "must be even"), (0, 4, 1e4, "at least 1"), (8, 0, 1e4, "at least 1"), (8, 4, 1.0, "above 1")],
    )
    def test_refuses_what_makes_no_table(self, d_model: int, length: int, base: float, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            SinusoidalPositions(d_model, length, base=base)

    def test_repr_says_the_configuration(self) -> None:
        assert repr(SinusoidalPositions(8, 10)) == "SinusoidalPositions(8, length=10, base=10000)"
