"""Training steps: what is the last of several, how a training began, and what is counted in each window."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from embedwatch.batch import TokenBatch, TrainingStep
from embedwatch.core import Statistic
from embedwatch.core.registry import get


def fed(*steps: TrainingStep) -> Statistic[Any]:
    statistic: Statistic[Any] = get(Statistic, "training")()
    for step in steps:
        statistic.update(step)
    return statistic


def values(statistic: Statistic[Any]) -> dict[str, float | None]:
    return {measurement.name: measurement.number for measurement in statistic.compute()}


def step(number: int, **scalars: float) -> TrainingStep:
    return TrainingStep(number, scalars)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_last_is_that_of_the_highest_step_in_any_order(order: tuple[int, ...]) -> None:
    steps = [step(7, loss=4.0, lr=0.1), step(9, loss=math.nan, lr=0.3), step(8, loss=2.0), step(9, lr=0.5)]
    found = values(fed(*(steps[place] for place in order)))
    assert found["loss_last"] == 2.0  # that of step 9 is no number
    assert found["learning_rate"] == pytest.approx(0.4)  # two ranks noted step 9
    assert (found["steps_total"], found["nonfinite_losses_total"], found["loss_mean"]) == (4, 1, 3.0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_training_begins_at_its_first_step(first: int) -> None:
    steps = [step(number, loss=9.0 - number, chance_loss=4.5) for number in (first + 1, first, first + 2)]
    assert values(fed(*steps))["initial_loss_ratio"] == pytest.approx((9 - first) / 4.5)


@pytest.mark.parametrize(
    "late",
    [
        step(2, loss=9.0, chance_loss=3.0),
        step(0, loss=9.0),
        step(0, loss=9.0, chance_loss=0.0),
        step(0, chance_loss=3.0),
    ],
    ids=["under way", "chance unknown", "one token", "no loss"],
)
def test_it_has_no_beginning(late: TrainingStep) -> None:
    assert values(fed(late))["initial_loss_ratio"] is None


def test_what_was_never_noted_is_missing() -> None:
    found = values(fed(step(3)))
    assert found.pop("steps_total") == 1
    assert found.pop("nonfinite_losses_total") == 0
    assert set(found.values()) == {None}


def test_movement_is_split_by_whether_a_token_came() -> None:
    statistic: Statistic[Any] = get(Statistic, "token_movement")()
    drift = torch.tensor([0.5, 0.7, 0.1, torch.nan, torch.inf])
    update = torch.tensor([0.01, torch.nan, torch.nan, 0.05, torch.nan])
    statistic.update(TokenBatch(torch.arange(5) + 10, torch.ones(5), torch.tensor([1, 2, 0, 0, 3]), drift, update))
    found = {measurement.key: measurement.number for measurement in statistic.compute()}
    assert found == {
        "token_drift_ratio{rows=touched}": pytest.approx(0.6),
        "token_drift_ratio{rows=untouched}": pytest.approx(0.1),
        "token_update_ratio": pytest.approx(0.03),
        "token_update_max_ratio": pytest.approx(0.05),
    }
    row, moved = statistic.exhibits()[0].rows[0]
    assert row == 13
    assert moved == pytest.approx(0.05)
