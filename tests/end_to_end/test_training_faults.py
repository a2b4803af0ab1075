"""Faults of real trainings are found and named; their healthy twins are silent."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embedwatch_model import Transformer
from tests.end_to_end.short_trainings import BATCH, DIMENSION, language_loss, text, train


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope"])
def test_a_healthy_training_is_silent(positions: str) -> None:
    training = train(steps=200, positions=positions)
    assert training.found == {}
    assert training.losses[-1] < training.losses[0] - 1, "it has learned"
    assert training.monitor.status == "ok"
    assert training.monitor.errors == {}


def test_a_frequent_token_that_is_pumped_without_weight_decay() -> None:
    tokenizer, stream = text()
    frequent = int(stream.mode().values)

    def pump(model: Transformer) -> None:
        with torch.no_grad():
            model.embedding.tokens.weight[frequent] *= 1.03

    training = train(after_step=pump)
    found = {
        (check, status): step for (check, place, status), step in training.found.items() if place.endswith("weight")
    }
    warned, failed = found["token_norm_growth", "warn"], found["token_norm_growth", "fail"]
    assert warned < failed, "growth is seen before the limit is crossed"
    assert "weight decay is 0" in training.first("token_norm_growth").reason
    exhibit = training.monitor.exhibits["embedding.tokens.weight"][0]
    worst = dict(zip(exhibit.columns, exhibit.rows[0], strict=True))
    assert worst["row"] == frequent
    assert worst["name"] == tokenizer.id_to_token(frequent)


def test_the_root_of_d_left_out() -> None:
    def left_out(model: Transformer) -> None:
        model.embedding.tokens.scale = 1.0

    training = train(steps=20, start=left_out)
    assert training.found["position_balance", "embedding.tokens.weight", "warn"] <= 10
    assert "0.18 to 1" in training.first("position_balance").reason


@pytest.mark.parametrize("positions", ["sinusoidal", "rope"])
def test_the_root_of_d_applied_twice(positions: str) -> None:
    def twice(model: Transformer) -> None:
        model.embedding.tokens.scale = float(DIMENSION)

    training = train(steps=20, start=twice, positions=positions)
    assert training.found["scaled_twice", "embedding.tokens.weight", "warn"] <= 10
    assert ("position_balance" in training.checks) == (positions == "sinusoidal")


@pytest.mark.parametrize("positions", ["sinusoidal", "rope"])
def test_an_initialisation_fifty_times_too_wide(positions: str) -> None:
    def widen(model: Transformer) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 50 if parameter.ndim >= 2 else 1

    training = train(steps=20, start=widen, positions=positions)
    assert training.found["initial_loss", "training", "fail"] <= 10
    assert ("embedding_scale", "embedding", "warn") in training.found


def test_a_learning_rate_a_hundred_times_too_large() -> None:
    training = train(rate=0.1)
    assert training.found["token_updates", "embedding.tokens.weight", "warn"] <= 20


def test_a_collapse() -> None:
    def all_alike(model: Transformer, batch: Tensor) -> Tensor:
        hidden = model(batch[:, :-1]).hidden
        return (hidden - hidden.mean((0, 1)).detach()).square().mean()

    training = train(loss_of=all_alike)
    assert ("hidden_collapse", "norm", "fail") in training.found


def test_a_loss_that_is_no_number() -> None:
    losses = iter(range(1_000))

    def sometimes_nan(model: Transformer, batch: Tensor) -> Tensor:
        loss = language_loss(model, batch)
        return loss * torch.nan if next(losses) == 14 else loss

    def restore(model: Transformer) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.nan_to_num_(0.0)

    training = train(steps=30, loss_of=sometimes_nan, after_step=restore)
    assert training.found["nonfinite_loss", "training", "fail"] == 20
    assert len(training.losses) == 30, "it went on"
    assert training.monitor.snapshots["training"].number("batch_size") == BATCH
