"""AdamW's groups against torch.optim.AdamW and its formula; clipping against torch's; every parameter counted once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from embedwatch_model.config import ModelConfig
from embedwatch_model.errors import ModelError
from embedwatch_model.optimizer import adamw, check_groups, clip_by_global_norm, parameter_groups
from embedwatch_model.transformer import Transformer

KINDS = ("decoder", "encoder", "encoder_decoder")


def model(kind: str = "decoder", **overrides: Any) -> Transformer:
    torch.manual_seed(0)
    settings = {"vocabulary": 20, "kind": kind, "d_model": 8, "layers": 2, "heads": 2, "length": 8, "dropout": 0.0}
    return Transformer(ModelConfig(**{**settings, **overrides}))


def gradients(module: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


class TestGroups:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("tied", [True, False])
    @pytest.mark.parametrize("positions", ["learned", "relative", "rope"])
    def test_hold_every_parameter_once(self, kind: str, tied: bool, positions: str) -> None:
        subject = model(kind, tied=tied, positions=positions)
        groups = parameter_groups(subject)
        ids = [id(parameter) for group in groups for parameter in group["params"]]
        assert sorted(ids) == sorted(id(parameter) for parameter in subject.parameters())
        names = [name for group in groups for name in group["names"]]
        assert [id(subject.get_parameter(name)) for name in names] == ids

    def test_matrices_decay_vectors_do_not_and_tables_by_choice(self) -> None:
        for choice, decay in ((False, 0.0), (True, 0.3)):
            groups = {g["name"]: g for g in parameter_groups(model(), decay=0.3, decay_embeddings=choice)}
            assert groups["matrices"]["weight_decay"] == 0.3
            assert {p.ndim for p in groups["matrices"]["params"]} == {2}
            assert groups["embeddings"]["weight_decay"] == decay
            assert groups["embeddings"]["names"] == ["embedding.tokens.weight"]  # tied: it is the projection too
            assert groups["vectors"]["weight_decay"] == 0.0
            assert {p.ndim for p in groups["vectors"]["params"]} == {1}

    def test_frozen_parameters_are_left_out(self) -> None:
        subject = model()
        subject.embedding.tokens.weight.requires_grad_(False)
        assert [group["name"] for group in parameter_groups(subject)] == ["matrices", "vectors"]

    def test_the_proof_finds_what_was_forgotten_doubled_or_strange(self) -> None:
        subject = nn.Linear(2, 2)
        everything = {"params": [subject.weight, subject.bias]}
        check_groups(subject, [everything])
        for groups, words in (
            ([{"params": [subject.weight]}], "bias 0 times"),
            ([everything, {"params": [subject.weight]}], "weight 2 times"),
            ([everything, {"params": [nn.Parameter(torch.zeros(1))]}], "1 that the model does not train"),
        ):
            with pytest.raises(ModelError, match=words):
                check_groups(subject, groups)


class TestAdamW:
    def test_steps_are_those_of_torch_with_groups_made_by_hand(self) -> None:
        ours, theirs = model(), model()
        mine = adamw(ours, rate=0.01, decay=0.2, betas=(0.9, 0.98))
        decayed = [p for name, p in theirs.named_parameters() if p.ndim == 2 and name != "embedding.tokens.weight"]
        rest = [p for p in theirs.parameters() if not any(p is one for one in decayed)]
        reference = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.2}, {"params": rest, "weight_decay": 0.0}],
            lr=0.01,
            betas=(0.9, 0.98),
        )
        for seed in range(5):
            gradients(ours, seed)
            gradients(theirs, seed)
            mine.step()
            reference.step()
        for (name, left), right in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left, right, msg=name)

    def test_follows_the_formula_of_its_docstring(self) -> None:
        layer = nn.Linear(3, 2, bias=False)
        theta = layer.weight.detach().clone().double()
        optimizer = adamw(layer, rate=0.1, decay=0.5, betas=(0.9, 0.95))
        m = v = torch.zeros_like(theta)
        for t in range(1, 6):
            gradients(layer, t)
            assert layer.weight.grad is not None
            g = layer.weight.grad.double()
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
            step = (m / (1 - 0.9**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-8)
            theta = theta - 0.1 * step - 0.1 * 0.5 * theta
            optimizer.step()
        torch.testing.assert_close(layer.weight.detach().double(), theta, rtol=1e-5, atol=1e-6)

    def test_decay_is_apart_from_the_gradient_as_it_is_not_in_adam(self) -> None:
        """Without gradient AdamW shrinks by 1 - ηλ; Adam with L2 moves by η whatever λ is."""
        layer = nn.Linear(1, 1, bias=False)
        nn.init.constant_(layer.weight, 2.0)
        layer.weight.grad = torch.zeros(1, 1)
        adamw(layer, rate=0.1, decay=0.5).step()
        assert layer.weight.item() == pytest.approx(2.0 * (1 - 0.05))
        nn.init.constant_(layer.weight, 2.0)
        torch.optim.Adam(layer.parameters(), lr=0.1, weight_decay=0.5).step()
        assert layer.weight.item() == pytest.approx(2.0 - 0.1)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"rate": 0.0}, "`rate` must be above 0"),
            ({"rate": 1.0, "decay": -1.0}, "`decay` must be 0 or more"),
            ({"rate": 1.0, "betas": (0.9, 1.0)}, "`betas` must be"),
        ],
    )
    def test_refuses_numbers_out_of_range(self, options: dict[str, Any], words: str) -> None:
        with pytest.raises(ModelError, match=words):
            adamw(nn.Linear(1, 1), **options)


class TestClip:
    @pytest.mark.parametrize("limit", [0.01, 1.0, 1e3])
    def test_is_that_of_torch(self, limit: float) -> None:
        ours, theirs = model(), model()
        gradients(ours, 0)
        gradients(theirs, 0)
        norm, clipped = clip_by_global_norm(ours.parameters(), limit)
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        assert norm == pytest.approx(expected.item(), rel=1e-6)
        assert clipped == (norm > limit)
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left.grad, right.grad, rtol=1e-5, atol=1e-8)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_touches_nothing_that_is_not_finite(self, bad: float) -> None:
        layer = nn.Linear(2, 1, bias=False)
        layer.weight.grad = torch.tensor([[1.0, bad]])
        norm, clipped = clip_by_global_norm(layer.parameters(), 0.1)
        assert not norm < float("inf")
        assert not clipped
        assert layer.weight.grad[0, 0] == 1.0

    def test_no_gradient_has_norm_0(self) -> None:
        assert clip_by_global_norm(nn.Linear(1, 1).parameters(), 1.0) == (0.0, False)

    def test_refuses_a_limit_of_0(self) -> None:
        with pytest.raises(ModelError, match="`clip` must be above 0"):
            clip_by_global_norm([], 0.0)
