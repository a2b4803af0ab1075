"""Models and trainings that are made in less usual ways: two optimizers, computed weights, texts that end early."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import embedwatch
from embedwatch.core.errors import UsageError
from embedwatch.observe.anatomy import find_stacks, token_groups
from tests.observe import tiny

V, D, DECAY = 60, 8, 0.3
OPTIONS: dict[str, Any] = {"every": 1, "sinks": [], "budget": None, "attention": 0, "on_error": "raise"}


class Model(nn.Module):
    """A table, layers and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.Tanh()) for _ in range(2))
        self.out = nn.Linear(D, V, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.emb(ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        logits: Tensor = self.out(hidden)
        return logits


def made() -> Model:
    torch.manual_seed(0)
    return Model().train()


IDS = torch.arange(4 * 9).view(4, 9)


def learn(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    functional.cross_entropy(model(IDS[:, :-1]).flatten(0, 1), IDS[:, 1:].flatten()).backward()
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad()


def split(model: Model) -> list[torch.optim.Optimizer]:
    """Return an optimizer of the matrices in the layers, and one of what is left, as a training with Muon has them."""
    rest = [*model.emb.parameters(), *model.out.parameters()]
    return [torch.optim.SGD(model.layers.parameters(), lr=0.02), torch.optim.AdamW(rest, lr=0.01, weight_decay=DECAY)]


@pytest.mark.parametrize("first", ["matrices", "table"])
def test_of_two_optimizers_that_of_the_table_counts_in_whatever_order(first: str) -> None:
    model = made()
    optimizers = split(model)[:: 1 if first == "matrices" else -1]
    with embedwatch.watch(
        model, window=5, only=["token_movement", "embedding_scale", "training"], **OPTIONS
    ) as monitor:
        for step in range(9):
            learn(model, *optimizers)
            assert monitor.pulse.step == step + 1
        monitor.flush()
        table, training = monitor.snapshots["emb.weight"], monitor.snapshots["training"]
    assert table.number("token_table_weight_decay") == DECAY
    assert 0.005 < (table.number("token_update_ratio") or 0.0) < 0.02  # it was 0 where the other one counted
    assert training.number("learning_rate") == 0.01


def test_the_gradient_is_that_of_all_optimizers_that_step_together() -> None:
    model, expected = made(), []
    optimizers = split(model)
    given: list[dict[str, Any]] = []
    with embedwatch.watch(model, only=["training"], **OPTIONS) as monitor:
        for _ in range(5):
            functional.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten()).backward()
            norms = [torch.linalg.vector_norm(each.grad) for each in model.parameters() if each.grad is not None]
            expected.append(float(torch.linalg.vector_norm(torch.stack(norms))))
            for optimizer in optimizers:
                optimizer.step()
            model.zero_grad()
            given += [dict(scalars) for _, scalars in monitor._rounds._steps[-1:]]
    found = [float(each["gradient_norm_applied"]) for each in given]
    assert len(found) == 4  # of the first step, and of those after the first window
    assert found[1:] == pytest.approx(expected[2:], rel=1e-5)  # in the first the second optimizer was not known yet
    assert ["table_gradient_norm" in each for each in given] == [False, True, True, True]


def test_an_optimizer_of_the_table_that_steps_more_rarely_does_not_count() -> None:
    model = made()
    matrices, rest = split(model)
    with embedwatch.watch(model, only=["token_movement"], **OPTIONS) as monitor:
        for step in range(12):
            learn(model, matrices, *([rest] if step % 4 == 3 else []))
        assert monitor.pulse.step == 12
        assert monitor._rounds.optimizers.optimizer is matrices


def test_predictions_are_seen_where_the_vocabulary_has_grown() -> None:
    model, ids = tiny.build("gpt2-lm").train(), tiny.numbers(3, 7)

    def entropy() -> float | None:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(3):
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            model.zero_grad()
            monitor.step()
        monitor.flush()
        return monitor.snapshots["training"].number("output_entropy_ratio")

    with embedwatch.watch(model, only=["outputs"], **OPTIONS) as monitor:
        assert entropy() is not None
        model.resize_token_embeddings(tiny.VOCABULARY + 8, mean_resizing=False)
        entropy()
        assert entropy() is not None  # from the next window on


@pytest.mark.parametrize("norm", [weight_norm, spectral_norm])
def test_computed_weights_are_not_computed_because_of_us(norm: Any) -> None:
    """A spectral norm takes a step of its iteration at each reading in training."""
    watched = made()
    norm(watched.emb)
    spectral_norm(watched.out)
    plain = copy.deepcopy(watched)
    with embedwatch.watch(watched, window=2, **OPTIONS) as monitor:
        pairs = [(model, torch.optim.AdamW(model.parameters(), lr=1e-2)) for model in (watched, plain)]
        for _ in range(3):
            for model, optimizer in pairs:
                learn(model, optimizer)
        monitor.flush()
        assert monitor.blind() == {}
        assert [place.name for place in monitor.places if place.role == "token"] == ["emb"]
        assert monitor._attachment.tables == []
    theirs = plain.state_dict()
    for name, each in watched.state_dict().items():
        assert tiny.identical(each, theirs[name]), name
    with pytest.raises(UsageError, match=r"as a parameter, got emb, computed from others"):
        embedwatch.renormalize_tokens(watched, 1.0)


def test_weights_that_are_computed_are_not_taken_for_shared() -> None:
    model = nn.ModuleDict({"user": nn.Embedding(V, D), "item": nn.Embedding(V, D), "out": nn.Linear(D, V)})
    for each in model.values():
        weight_norm(each)
    assert [list(group) for group in token_groups(model)] == [["user"], ["item"]]
    assert find_stacks(dict(model.named_modules())) == {}


def test_texts_that_ended_before_the_longest_are_padding_in_generation() -> None:
    """There transformers goes on with the padding token, under a mask that calls it real."""
    model: Any = tiny.build("llama-lm").eval()
    batch, end = tiny.inputs("llama-lm", left=True), tiny.VOCABULARY - 1
    model.config.pad_token_id = tiny.PAD

    def first_text_ends(tokens: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, [tiny.PAD, end]] = -torch.inf
        scores[0, end] = torch.inf if tokens.shape[1] == tiny.LENGTH + 1 else -torch.inf
        return scores

    with tiny.eyes(model) as eyes:
        written = model.generate(
            **batch,
            max_new_tokens=5,
            do_sample=False,
            pad_token_id=tiny.PAD,
            eos_token_id=end,
            logits_processor=[first_text_ends],
        )
        seen = [len(rows) for rows in eyes.looks("model.layers.1")]
    assert written[0, tiny.LENGTH + 1 :].tolist() == [end, *[tiny.PAD] * 3]
    assert seen == [sum(tiny.LENGTHS), tiny.BATCH, tiny.BATCH, tiny.BATCH - 1, tiny.BATCH - 1]
