"""Attention against `torch.nn.MultiheadAttention` and against the formula written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from embedwatch_model import AttentionMask, ModelError, MultiHeadAttention, attention_mask
from tests.model.tiny import stir

D, H, B, T, S = 24, 4, 3, 6, 9


def pair() -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Return ours and torch's with the same weights."""
    ours, theirs = MultiHeadAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)
    stir(ours, size=0.3)
    with torch.no_grad():
        linears = [ours.to_query, ours.to_key, ours.to_value]
        theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in linears]))
        theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in linears]))
        theirs.out_proj.weight.copy_(ours.to_output.weight)
        theirs.out_proj.bias.copy_(ours.to_output.bias)
    return ours, theirs


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def check(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


class TestAgainstTorch:
    def test_self_attention(self) -> None:
        ours, theirs = pair()
        x = randn(B, T, D)
        check(ours(x), theirs(x, x, x)[0])

    def test_cross_attention(self) -> None:
        ours, theirs = pair()
        x, context = randn(B, T, D), randn(B, S, D, seed=1)
        check(ours(x, context), theirs(x, context, context)[0])

    def test_causal_mask(self) -> None:
        ours, theirs = pair()
        x = randn(B, T, D)
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        check(ours(x, mask=attention_mask(T, T, causal=True)), theirs(x, x, x, attn_mask=future)[0])

    def test_padding_mask(self) -> None:
        ours, theirs = pair()
        x, context = randn(B, T, D), randn(B, S, D, seed=1)
        real = torch.arange(S) < torch.tensor([[9], [4], [1]])
        mask = attention_mask(1, S, causal=False, padding=real)
        check(ours(x, context, mask=mask), theirs(x, context, context, key_padding_mask=~real)[0])

    def test_causal_and_padding_masks(self) -> None:
        ours, theirs = pair()
        x = randn(B, T, D)
        real = torch.arange(T) < torch.tensor([[6], [4], [1]])
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        expected = theirs(x, x, x, attn_mask=future, key_padding_mask=~real)[0]
        check(ours(x, mask=attention_mask(T, T, causal=True, padding=real)), expected)

    def test_window(self) -> None:
        ours, theirs = pair()
        x = randn(B, T, D)
        steps = torch.arange(T)[:, None] - torch.arange(T)
        for causal in (True, False):
            hidden = (steps.abs() >= 3) | ((steps < 0) & causal)
            found = ours(x, mask=attention_mask(T, T, causal=causal, window=3))
            check(found, theirs(x, x, x, attn_mask=hidden)[0])

    def test_bias(self) -> None:
        ours, theirs = pair()
        x, bias = randn(B, T, D), randn(B, H, T, T, seed=1)
        found = ours(x, mask=attention_mask(T, T, causal=False, bias=bias))
        check(found, theirs(x, x, x, attn_mask=bias.flatten(0, 1))[0])

    def test_gradients(self) -> None:
        ours, theirs = (module.double() for module in pair())
        x = randn(B, T, D).double()
        ours(x).square().sum().backward()
        theirs(x, x, x)[0].square().sum().backward()
        expected = theirs.in_proj_weight.grad
        assert expected is not None
        found = [linear.weight.grad for linear in (ours.to_query, ours.to_key, ours.to_value)]
        torch.testing.assert_close(torch.cat([g for g in found if g is not None]), expected, atol=1e-9, rtol=1e-9)


class TestFormula:
    @pytest.mark.parametrize("groups", [1, 2, 4])
    def test_grouped_heads_share_keys_and_values(self, groups: int) -> None:
        attention = MultiHeadAttention(D, H, kv_heads=groups)
        stir(attention, size=0.3)
        x = randn(B, T, D)
        query, key, value = (
            linear(x).unflatten(-1, (-1, D // H))
            for linear in (attention.to_query, attention.to_key, attention.to_value)
        )  # (B, T, H or G, K)
        means = []
        for h in range(H):
            g = h // (H // groups)
            scores = query[:, :, h] @ key[:, :, g].transpose(-1, -2) / math.sqrt(D // H)
            means.append(scores.softmax(-1) @ value[:, :, g])
        check(attention(x), attention.to_output(torch.cat(means, dim=-1)))

    def test_scores_have_variance_1_for_every_head_size(self) -> None:
        for size in (4, 64, 256):
            q, k = randn(4000, size), randn(4000, size, seed=1)
            assert (q * k).sum(-1).var().item() == pytest.approx(size, rel=0.1)
            assert ((q * k).sum(-1) / math.sqrt(size)).var().item() == pytest.approx(1.0, rel=0.1)

    def test_places_see_queries_keys_and_values(self) -> None:
        attention = MultiHeadAttention(D, H, kv_heads=2)
        seen: dict[str, Tensor] = {}
        for name in ("query", "key", "value"):
            hook = lambda module, inputs, output, name=name: seen.update({name: output})  # noqa: E731
            getattr(attention, name).register_forward_hook(hook)
        x = randn(B, T, D)
        found = attention(x)
        key, value = (seen[name].repeat_interleave(2, dim=1) for name in ("key", "value"))
        weights = (seen["query"] @ key.transpose(-1, -2) / math.sqrt(D // H)).softmax(-1)
        check(found, attention.to_output((weights @ value).transpose(1, 2).flatten(2)))

    def test_dropout_of_weights_acts_in_training_only(self) -> None:
        attention = MultiHeadAttention(D, H, dropout=0.5)
        x = randn(B, T, D)
        assert not torch.equal(attention(x), attention(x))
        attention.eval()
        assert torch.equal(attention(x), attention(x))

    @pytest.mark.parametrize(("heads", "kv_heads"), [(5, None), (4, 3)])
    def test_refuses_heads_that_do_not_divide(self, heads: int, kv_heads: int | None) -> None:
        with pytest.raises(ModelError, match="`heads` must be a divisor"):
            MultiHeadAttention(D, heads, kv_heads=kv_heads)


class TestMask:
    def test_needs_no_tensor_where_the_kernel_knows_the_mask(self) -> None:
        assert attention_mask(5, 5, causal=True) == AttentionMask(causal=True)
        assert attention_mask(5, 5, causal=False) == AttentionMask()
        assert attention_mask(1, 5, causal=True) == AttentionMask()

    def test_queries_stand_at_the_end_of_the_keys(self) -> None:
        values = attention_mask(2, 4, causal=True).values
        assert values is not None
        assert values[0, 0].tolist() == [[True, True, True, False], [True, True, True, True]]

    def test_the_window_counts_from_there(self) -> None:
        values = attention_mask(1, 4, causal=True, window=2).values
        assert values is not None
        assert values[0, 0].tolist() == [[False, False, True, True]]

    @pytest.mark.parametrize("biased", [False, True])
    def test_no_kernel_meets_a_row_that_sees_nothing(self, biased: bool) -> None:
        """Kernels differ in what they make of one: some NaN, some 0. So it is opened, and its result is set to 0."""
        real = torch.tensor([[False, False, True]])
        mask = attention_mask(3, 3, causal=True, padding=real, bias=torch.zeros(1, 2, 3, 3) if biased else None)
        assert mask.values is not None
        assert mask.empty is not None
        seen = mask.values > float("-inf") if biased else mask.values
        assert seen[0, 0].tolist() == [[True] * 3, [True] * 3, [False, False, True]]
        assert mask.empty.flatten().tolist() == [True, True, False]

    @pytest.mark.parametrize("biased", [False, True])
    def test_rows_that_see_nothing_find_nothing_and_harm_nobody(self, biased: bool) -> None:
        attention = MultiHeadAttention(D, H)
        stir(attention)
        x = randn(B, T, D).requires_grad_()
        real = torch.ones(B, T, dtype=torch.bool)
        real[0, :3] = False  # padded on the left: the first three queries see nothing
        real[1] = False  # an empty text
        bias = randn(1, H, T, T) if biased else None
        found = attention(x, mask=attention_mask(T, T, causal=True, padding=real, bias=bias))
        assert torch.equal(found[1], attention.to_output.bias.expand(T, D))
        assert torch.equal(found[0, :3], attention.to_output.bias.expand(3, D))
        found.sum().backward()
        assert x.grad is not None
        assert bool(x.grad.isfinite().all())
