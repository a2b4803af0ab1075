"""Token embedding against its formula, and the sum that enters the first layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from embedwatch_model import InputEmbedding, ModelError, NoPositions, SinusoidalPositions, TokenEmbedding


def rms(x: torch.Tensor) -> float:
    return float(x.detach().square().mean().sqrt())


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
        theirs.load_state_dict(ours.state_dict())
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
        with pytest.raises(ModelError, match="must be at least 1"):
            TokenEmbedding(vocabulary, d_model)

    @pytest.mark.parametrize(("scaled", "tied"), [(True, True), (True, False), (False, True), (False, False)])
    def test_starts_as_the_table_in_its_docstring_says(self, scaled: bool, tied: bool) -> None:
        torch.manual_seed(0)
        embedding = TokenEmbedding(2_000, 64, scaled=scaled, tied=tied)
        std = 1.0 if not scaled and not tied else 64**-0.5
        assert rms(embedding.weight) == pytest.approx(std, rel=0.01)
        assert rms(embedding(torch.arange(2_000)[None])) == pytest.approx(1 / 8 if tied and not scaled else 1, rel=0.01)


class TestInputEmbedding:
    def test_sums_tokens_positions_and_segments(self) -> None:
        embedding = InputEmbedding(TokenEmbedding(9, 8), SinusoidalPositions(8, 6), segments=2)
        assert embedding.segments is not None
        ids, segments = torch.tensor([[1, 2, 8]]), torch.tensor([[0, 0, 1]])
        expected = embedding.tokens.weight[ids] * math.sqrt(8) + embedding.positions.table[:3]
        expected = expected + embedding.segments.weight[segments]
        assert torch.allclose(embedding(ids, segments=segments), expected, atol=1e-6)

    def test_the_scale_is_on_the_tokens_alone(self) -> None:
        embedding = InputEmbedding(TokenEmbedding(9, 8), SinusoidalPositions(8, 6))
        nn.init.zeros_(embedding.tokens.weight)
        assert torch.equal(embedding(torch.tensor([[1, 2]]))[0], embedding.positions.table[:2])

    def test_normalises_the_sum_if_asked_to(self) -> None:
        embedding = InputEmbedding(TokenEmbedding(9, 8), NoPositions(), norm=nn.LayerNorm(8))
        out = embedding(torch.tensor([[1, 2, 8]]))
        assert torch.allclose(out.mean(-1), torch.zeros(1, 3), atol=1e-6)
        assert torch.allclose(out.var(-1, unbiased=False), torch.ones(1, 3), atol=1e-3)
