"""Schedules against torch's own and against the formula of the first Transformer."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from embedwatch_model.errors import ModelError
from embedwatch_model.schedules import Schedule, scale_rate


def torchs(make: Any, steps: int) -> list[float]:
    """Return the rates of one of torch's schedulers with a peak of 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SequentialLR calls its parts as their authors advise against
            scheduler.step()
    return rates


def ours(schedule: Schedule, steps: int) -> list[float]:
    return [schedule(step) for step in range(steps)]


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_cosine_is_torchs(floor: float) -> None:
    expected = torchs(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=50, eta_min=floor), 51)
    assert ours(Schedule("cosine", steps=50, floor=floor), 51) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("period", "growth"), [(7, 1), (5, 2), (4, 3), (1, 2)])
def test_restarts_are_torchs(period: int, growth: int) -> None:
    expected = torchs(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=period, T_mult=growth), 400)
    schedule = Schedule("restarts", steps=400, period=period, growth=growth)
    assert ours(schedule, 400) == pytest.approx(expected, abs=1e-9)


def test_warm_up_is_torchs_linear_one_and_the_rest_is_moved_behind_it() -> None:
    w = 10
    expected = torchs(
        lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.LinearLR(o, start_factor=1 / w, total_iters=w - 1),
                lr_scheduler.CosineAnnealingLR(o, T_max=40),
            ],
            milestones=[w],
        ),
        50,
    )
    assert ours(Schedule("cosine", steps=50, warmup=w), 50) == pytest.approx(expected, abs=1e-9)


def test_inverse_square_root_is_equation_3_of_the_paper() -> None:
    d_model, w = 512, 40
    schedule = Schedule("inverse_sqrt", steps=1000, warmup=w)
    peak = d_model**-0.5 * w**-0.5
    for t in range(1, 1001):  # the paper counts from 1
        paper = d_model**-0.5 * min(t**-0.5, t * w**-1.5)
        assert peak * schedule(t - 1) == pytest.approx(paper, rel=1e-9)


def test_constant_stays() -> None:
    assert ours(Schedule("constant", steps=4, warmup=2), 4) == [0.5, 1, 1, 1]


def test_cosine_stays_at_its_floor() -> None:
    assert Schedule("cosine", steps=10, floor=0.2)(99) == pytest.approx(0.2)


def test_comes_back_from_json() -> None:
    schedule = Schedule("restarts", steps=9, warmup=1, period=3, growth=2.0, floor=0.1)
    assert Schedule(**schedule.to_json()) == schedule


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "cosin"}, "`kind` must be one of"),
        ({"steps": 0}, "`steps`"),
        ({"warmup": -1}, "`warmup`"),
        ({"floor": 2.0}, "`floor`"),
        ({"kind": "restarts"}, "`period`"),
        ({"growth": 0.5}, "`growth`"),
    ],
)
def test_refuses_what_does_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Schedule(**options)


def test_the_rate_follows_the_batch() -> None:
    assert scale_rate(0.1, batch=64, base=16, rule="linear") == pytest.approx(0.4)
    assert scale_rate(0.1, batch=64, base=16, rule="sqrt") == pytest.approx(0.2)
    assert scale_rate(0.1, batch=4, base=16, rule="sqrt") == pytest.approx(0.05)
    with pytest.raises(ModelError, match="linear or sqrt"):
        scale_rate(0.1, batch=1, base=1, rule="cubic")
    with pytest.raises(ModelError, match="at least 1"):
        scale_rate(0.1, batch=0, base=1, rule="sqrt")
