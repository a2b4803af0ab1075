"""Losses against torch's own; masks by their proportions; translation by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from embedwatch_model.errors import ModelError
from embedwatch_model.objectives import IGNORE, causal, cross_entropy, masked, translation
from embedwatch_model.text import BEGIN, END, MASK, PADDING, SPECIAL


def draw(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 11, generator=generator) * 3
    targets = torch.randint(0, 11, (3, 5), generator=generator)
    targets[0, 3:] = IGNORE
    targets[2] = IGNORE
    return logits, targets


class TestCrossEntropy:
    @pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
    def test_value_and_gradient_are_those_of_torch(self, smoothing: float) -> None:
        logits, targets = draw()
        ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        loss = cross_entropy(ours, targets, smoothing=smoothing)
        expected = functional.cross_entropy(
            theirs.flatten(0, 1), targets.flatten(), label_smoothing=smoothing, ignore_index=IGNORE
        )
        (loss.total / loss.number).backward()
        expected.backward()
        assert loss.number == int((targets != IGNORE).sum())
        torch.testing.assert_close(loss.total / loss.number, expected)
        torch.testing.assert_close(ours.grad, theirs.grad)

    def test_smoothed_minimum_is_the_entropy_of_the_smoothed_targets(self) -> None:
        q = torch.full((8,), 0.1 / 8)
        q[3] += 0.9
        loss = cross_entropy(q.log()[None, None], torch.tensor([[3]]), smoothing=0.1)
        assert loss.total.item() == pytest.approx(float(-(q * q.log()).sum()), rel=1e-6)

    def test_nats_are_never_smoothed(self) -> None:
        logits, targets = draw()
        assert cross_entropy(logits, targets, smoothing=0.3).nats == cross_entropy(logits, targets).nats

    def test_nothing_wanted_costs_nothing(self) -> None:
        logits, targets = draw()
        loss = cross_entropy(logits.requires_grad_(), torch.full_like(targets, IGNORE))
        loss.total.backward()
        assert (loss.number, loss.total.item()) == (0, 0.0)
        assert not logits.grad.any()

    def test_sums_are_made_in_float32(self) -> None:
        logits, targets = draw()
        assert cross_entropy(logits.bfloat16(), targets).total.dtype == torch.float32

    @pytest.mark.parametrize("smoothing", [-0.1, 1.0])
    def test_refuses_other_shares(self, smoothing: float) -> None:
        with pytest.raises(ModelError, match="at least 0 and below 1"):
            cross_entropy(*draw(), smoothing=smoothing)


class TestMasked:
    ids = torch.randint(len(SPECIAL), 500, (400, 500), generator=torch.Generator().manual_seed(1))

    def test_has_the_proportions_of_bert(self) -> None:
        batch = masked(self.ids, vocabulary=500, generator=torch.Generator().manual_seed(0))
        chosen = batch.targets != IGNORE
        sigma = math.sqrt(0.15 * 0.85 / chosen.numel())
        assert chosen.float().mean().item() == pytest.approx(0.15, abs=5 * sigma)
        n = int(chosen.sum())
        changed, was = batch.ids[chosen], self.ids[chosen]
        random = (changed != MASK) & (changed != was)
        kept = changed == was
        for share, expected in ((changed == MASK, 0.8), (random, 0.1 * 495 / 496), (kept, 0.1 + 0.1 / 496)):
            spread = 5 * math.sqrt(expected * (1 - expected) / n)
            assert share.float().mean().item() == pytest.approx(expected, abs=spread)

    def test_targets_are_the_truth_and_the_rest_is_untouched(self) -> None:
        batch = masked(self.ids, vocabulary=500, generator=torch.Generator().manual_seed(0))
        chosen = batch.targets != IGNORE
        assert torch.equal(batch.targets[chosen], self.ids[chosen])
        assert torch.equal(batch.ids[~chosen], self.ids[~chosen])
        assert batch.ids.min() >= MASK  # random tokens are never special

    def test_special_tokens_are_never_asked_for(self) -> None:
        ids = torch.tensor([[BEGIN, END, PADDING, MASK]]).repeat(50, 50)
        batch = masked(ids, vocabulary=500, generator=torch.Generator().manual_seed(0))
        assert torch.equal(batch.ids, ids)
        assert batch.number == 0

    def test_the_seed_decides(self) -> None:
        first, second, third = (
            masked(self.ids, vocabulary=500, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
        )
        assert torch.equal(first.ids, second.ids)
        assert not torch.equal(first.ids, third.ids)

    def test_refuses_a_rate_outside_0_to_1(self) -> None:
        with pytest.raises(ModelError, match="between 0 and 1"):
            masked(self.ids, vocabulary=500, generator=torch.Generator(), rate=1.0)


def test_causal_targets_lie_one_step_ahead_and_skip_padding() -> None:
    batch = causal(torch.tensor([[1, 5, 6, PADDING]]))
    assert batch.ids.tolist() == [[1, 5, 6]]
    assert batch.targets.tolist() == [[5, 6, IGNORE]]
    with pytest.raises(ModelError, match="at least 2"):
        causal(torch.tensor([[1]]))


def test_translation_pads_and_shifts() -> None:
    batch = translation([torch.tensor([7]), torch.tensor([8, 9])], [torch.tensor([5, 6]), torch.tensor([4])])
    assert batch.source is not None
    assert batch.source_mask is not None
    assert batch.source.tolist() == [[7, END, PADDING], [8, 9, END]]
    assert batch.source_mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.ids.tolist() == [[BEGIN, 5, 6], [BEGIN, 4, PADDING]]
    assert batch.targets.tolist() == [[5, 6, END], [4, END, IGNORE]]
