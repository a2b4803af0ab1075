"""Faults of how a training goes are found in short real trainings; their healthy twins are silent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from embedwatch_model import Transformer
from tests.checks.test_training_courses import CHECKS
from tests.end_to_end.short_trainings import BATCH, HELD_OUT, LENGTH, VOCABULARY, Training, language_loss, text, train

pytestmark = pytest.mark.slow

LN_V = math.log(VOCABULARY)
"""What a blind guess costs."""

COURSES = set(CHECKS)


def not_held_out(step: int, stream: Tensor) -> Tensor:
    """Return what does not validate."""
    return stream[:-HELD_OUT]


def found(training: Training) -> set[str]:
    return training.checks & COURSES


@pytest.mark.parametrize("rate", [3.3e-4, 1e-3, 3e-3])
@pytest.mark.parametrize("seed", [0, 1])
def test_healthy_trainings_are_silent(rate: float, seed: int) -> None:
    training = train(steps=130, rate=rate, seed=seed)
    assert found(training) == set()
    judged = {verdict.check for verdict in training.monitor.verdicts if verdict.status != "unknown"}
    assert judged >= COURSES - {"loss_oscillation"}, "each has been asked; ten steps are too few for a wave"


def test_targets_that_were_shuffled_apart_from_their_inputs() -> None:
    generator = torch.Generator().manual_seed(0)

    def shuffled(model: Transformer, batch: Tensor) -> Tensor:
        order = torch.randperm(batch.numel(), generator=generator)
        targets = batch.flatten()[order].view_as(batch)[:, 1:]
        return functional.cross_entropy(model(batch[:, :-1]).logits.transpose(1, 2), targets)

    training = train(steps=180, rate=2e-3, loss_of=shuffled, data_of=not_held_out)
    assert "plateau" in found(training)
    assert found(training) <= {"plateau", "outputs_alike"}, "for long the likeliest token is the same everywhere"
    assert "of a blind guess" in training.first("plateau").reason


def test_a_few_texts_that_are_learned_by_heart() -> None:
    training = train(steps=120, rate=3e-3, data_of=lambda step, stream: stream[:1_500], dropout=0.0)
    assert found(training) == {"overfitting"}
    assert ("overfitting", "training", "fail") in training.found
    assert training.monitor.snapshots["training"].number("validation_loss") is not None


def test_what_is_held_out_is_another_kind_of_text() -> None:
    tokenizer, stream = text()
    other = stream[-5_000:].clone()
    order = torch.Generator().manual_seed(0)
    odd = torch.rand(len(other), generator=order) < 0.5
    other[odd] = torch.randint(tokenizer.get_vocab_size(), (int(odd.sum()),), generator=order)
    assert "validation_gap" in found(train(steps=120, rate=2e-3, held_out=other, data_of=not_held_out))


def test_a_limit_of_clipping_that_is_a_hundred_times_too_low() -> None:
    training = train(steps=40, clip=0.01)
    assert found(training) == {"clipping"}
    assert "100% of the steps are clipped" in training.first("clipping").reason


def test_a_batch_that_doubles_without_the_rate() -> None:
    training = train(steps=80, batch_of=lambda step: BATCH if step <= 40 else 2 * BATCH)
    assert found(training) == {"rate_for_batch"}
    assert training.found["rate_for_batch", "training", "warn"] == 60
    with_rate = train(
        steps=80,
        batch_of=lambda step: BATCH if step <= 40 else 2 * BATCH,
        rate_of=lambda step: 1e-3 if step <= 40 else 1.4e-3,
    )
    assert found(with_rate) == set()


def test_a_rate_that_jumps() -> None:
    training = train(steps=80, rate_of=lambda step: 0.3 if 42 <= step < 47 else 1e-3)
    assert ("loss_spike", "training", "fail") in training.found


@pytest.mark.parametrize("window", [10, 40])
def test_a_plain_gradient_descent_that_runs_away(window: int) -> None:
    training = train(
        steps=80,
        rate=30.0,
        window=window,
        optimizer_of=lambda model, rate: torch.optim.SGD(model.parameters(), lr=rate),
    )
    assert max(training.losses) > 10 * LN_V
    assert ("loss_divergence", "training", "fail") in training.found
    assert "a blind guess costs 6.68" in training.first("loss_divergence").reason


def test_a_rate_a_thousand_times_too_high() -> None:
    training = train(steps=40, rate=1.0)
    assert training.found["loss_divergence", "training", "fail"] <= 20


def test_a_rate_that_kicks_every_eight_steps() -> None:
    training = train(steps=120, window=20, rate_of=lambda step: 0.3 if step > 20 and step % 8 == 0 else 1e-3)
    assert "loss_divergence" in found(training)
    assert ("rate_kicks", "training", "warn") in training.found


def test_kicks_that_the_loss_does_not_show() -> None:
    training = train(steps=120, window=20, rate_of=lambda step: 6e-3 if step > 20 and step % 8 == 0 else 1e-3)
    assert ("rate_kicks", "training", "warn") in training.found


@pytest.mark.parametrize("cycle", [8, 20, 60])
def test_warm_restarts_are_no_kicks(cycle: int) -> None:
    def restarted(step: int) -> float:
        return 1e-5 + 5e-4 * (1 + math.cos(math.pi * (step % cycle) / cycle))

    assert "rate_kicks" not in train(steps=120, window=20, rate_of=restarted).checks


def test_weights_that_begin_too_wide_are_no_divergence() -> None:
    def widen(model: Transformer) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(50 if parameter.ndim >= 2 else 1)

    training = train(steps=60, start=widen)
    assert training.losses[-1] > 10 * LN_V
    assert "loss_divergence" not in training.checks


def test_two_kinds_of_text_in_turn() -> None:
    def in_turn(step: int, stream: Tensor) -> Tensor:
        return stream[:-5_000] if step // 4 % 2 else stream[: LENGTH + 2]  # the whole, or one sentence again and again

    training = train(steps=120, window=60, data_of=in_turn)
    assert found(training) == {"loss_oscillation"}
    assert "once in 7.95 steps" in training.first("loss_oscillation").reason, "eight, but for a twentieth"


@pytest.mark.parametrize(("factor", "status"), [(300.0, "fail"), (1e-5, "fail")])
def test_gradients_that_explode_or_vanish(factor: float, status: str) -> None:
    calls = iter(range(1_000))

    def scaled(model: Transformer, batch: Tensor) -> Tensor:
        loss, by = language_loss(model, batch), factor if next(calls) >= 90 else 1.0
        return loss * by + (loss * (1 - by)).detach()  # the loss itself stays

    training = train(steps=120, loss_of=scaled)
    assert ("gradient_scale", "training", status) in training.found


def test_one_target_everywhere() -> None:
    def one_target(model: Transformer, batch: Tensor) -> Tensor:
        return functional.cross_entropy(model(batch[:, :-1]).logits.transpose(1, 2), torch.full_like(batch[:, 1:], 5))

    training = train(steps=100, rate=2e-3, loss_of=one_target)
    assert ("outputs_alike", "training", "fail") in training.found


def test_a_loss_that_is_no_number_skips_nothing_else() -> None:
    calls = iter(range(1_000))

    def sometimes_nan(model: Transformer, batch: Tensor) -> Tensor:
        loss = language_loss(model, batch)
        return loss * torch.nan if next(calls) == 34 else loss

    def restore(model: Transformer) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.nan_to_num_(0.0)

    training = train(steps=50, loss_of=sometimes_nan, after_step=restore)
    assert training.found["nonfinite_loss", "training", "fail"] == 40
