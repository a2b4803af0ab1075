"""Kicks of the learning rate are found; schedules that people use, restarts and cycles among them, are silent."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from embedwatch.batch import TrainingStep
from embedwatch.checks.rate_kicks import RateKicks
from embedwatch.core import Space
from embedwatch.core.verdict import Verdict
from embedwatch.judging import Judge
from embedwatch.stats.rate_course import RateCourse
from embedwatch.window import Window

WINDOWS = (40, 100, 512)
PEAK = 1e-3


def judged(rates: list[float]) -> list[Verdict]:
    window = Window([RateCourse()])
    for step, rate in enumerate(rates):
        window.update(TrainingStep(step, {"lr": rate}))
    return Judge([RateKicks()]).judge(window.snapshot(Space("m", "training"), role="training"))


def scheduled(make: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler], steps: int) -> list[float]:
    """Return the rates that a scheduler of torch gives."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return rates


SCHEDULERS = torch.optim.lr_scheduler
SCHEDULES = {
    "restarts of 10": lambda it: SCHEDULERS.CosineAnnealingWarmRestarts(it, 10),
    "restarts of 8": lambda it: SCHEDULERS.CosineAnnealingWarmRestarts(it, 8, eta_min=1e-7),
    "longer restarts": lambda it: SCHEDULERS.CosineAnnealingWarmRestarts(it, 10, T_mult=2),
    "long restarts": lambda it: SCHEDULERS.CosineAnnealingWarmRestarts(it, 50),
    "triangles": lambda it: SCHEDULERS.CyclicLR(it, 1e-6, PEAK, step_size_up=5, cycle_momentum=False),
    "steep triangles": lambda it: SCHEDULERS.CyclicLR(it, 1e-6, PEAK, 1, 9, cycle_momentum=False),
    "one cycle": lambda it: SCHEDULERS.OneCycleLR(it, PEAK, total_steps=512, cycle_momentum=False),
    "steps": lambda it: SCHEDULERS.StepLR(it, 20, gamma=0.1),
    "exponential": lambda it: SCHEDULERS.ExponentialLR(it, 0.9),
    "warm-up": lambda it: SCHEDULERS.LinearLR(it, 1e-4, total_iters=30),
    "constant": lambda it: SCHEDULERS.ConstantLR(it, 0.01, 20),
}


@pytest.mark.parametrize("steps", WINDOWS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_torch_are_silent(name: str, steps: int) -> None:
    assert [verdict.status for verdict in judged(scheduled(SCHEDULES[name], steps))] == ["ok"]


@pytest.mark.parametrize(
    "rate_of",
    [
        lambda step: PEAK * (100 if step % 2 else 1),  # two optimizers in turn
        lambda step: PEAK * min((step + 1) ** -0.5, step * 20**-1.5),
        lambda step: 0.0 if step < 10 else PEAK,
        lambda step: PEAK * (0.01 if step % 10 == 0 else 1),  # a dip is no kick
        lambda step: PEAK * math.exp(-step / 5),
    ],
)
def test_other_courses_are_silent(rate_of: Callable[[int], float]) -> None:
    assert [verdict.status for verdict in judged([rate_of(step) for step in range(100)])] == ["ok"]


@pytest.mark.parametrize("every", [5, 8, 20])
@pytest.mark.parametrize("factor", [6.0, 300.0])
@pytest.mark.parametrize("lasting", [1, 2])
def test_kicks_are_found(every: int, factor: float, lasting: int) -> None:
    rates = [PEAK * (factor if step % every < lasting else 1.0) for step in range(60)]
    (verdict,) = judged(rates)
    assert verdict.status == "warn"
    assert "leaps to five times" in verdict.reason


def test_kicks_are_found_on_a_rate_that_decays() -> None:
    rates = [PEAK * math.cos(math.pi * step / 220) * (8.0 if step % 8 == 0 else 1.0) for step in range(100)]
    assert judged(rates)[0].status == "warn"


def test_one_kick_alone_and_too_few_rates_are_no_finding() -> None:
    assert judged([PEAK] * 20 + [1.0] + [PEAK] * 20)[0].status == "ok"
    assert judged([PEAK, 1.0, PEAK]) == []
