"""Checks of how a training goes, on courses that are planted and on healthy ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from embedwatch.batch import TrainingStep
from embedwatch.core import Check, History, Snapshot, Space, Statistic
from embedwatch.core.history import course_of
from embedwatch.core.registry import get, registered
from embedwatch.judging import Judge
from embedwatch.window import Window

CHECKS = (
    "plateau",
    "loss_oscillation",
    "loss_spike",
    "loss_divergence",
    "overfitting",
    "validation_gap",
    "outputs_alike",
    "gradient_scale",
    "clipping",
    "rate_for_batch",
    "skipped_steps",
)
STEPS, WINDOW, CHANCE = 400, 25, 9.0
Course = Callable[[int, float], Mapping[str, float]]
"""Step and a draw of noise to what differs from the healthy course."""


def healthy(step: int, noise: float) -> dict[str, float]:
    """A training with warm-up and cosine; validated every tenth step, without dropout."""
    loss = 3 + 6 * math.exp(-step / 80) + 0.1 * noise
    found = {
        "loss": loss,
        "lr": 1e-3 * min(1, step / 20) * (1 + math.cos(math.pi * step / STEPS)) / 2,
        "batch_size": 16,
        "gradient_norm": (1.5 if step > 30 else 5.0) * math.exp(0.3 * noise),
        "gradient_norm_limit": 1.0,
        "chance_loss": CHANCE,
        "output_entropy": max(0.3, 0.95 - step / 400),
        "output_top_share": 1.0 if 5 < step < 60 else 0.2,
        "skipped": float(step < 8),
    }
    return {**found, "validation_loss": loss - 0.1 * noise + 0.02} if step % 10 == 0 else found


def told(course: Course, *, window: int = WINDOW, seed: int = 0) -> dict[tuple[str, str], tuple[int, str]]:
    """Return the first step, and the reason, of each finding."""
    names = ("training", "loss_course", "gradients", "outputs")
    judge, history = Judge([get(Check, name)() for name in CHECKS]), History(capacity=50, keep="even")
    found: dict[tuple[str, str], tuple[int, str]] = {}
    draws = torch.randn(STEPS + 1, generator=torch.Generator().manual_seed(seed)).tolist()
    open_window: Window | None = None
    for step in range(1, STEPS + 1):
        open_window = open_window or Window([registered(Statistic)[name]() for name in names])
        open_window.update(TrainingStep(step, {**healthy(step, draws[step]), **course(step, draws[step])}))
        if step == 1 or step % window == 0:
            snapshot = open_window.snapshot(Space("m", "training"), step=step, role="training")
            for verdict in judge.judge(snapshot, None, history):
                if verdict.status in ("warn", "fail"):
                    found.setdefault((verdict.check, verdict.status), (step, verdict.reason))
            history.append(snapshot)
            open_window = None
    return found


def nothing(step: int, noise: float) -> dict[str, float]:
    del step, noise
    return {}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("window", [10, 25, 100])
def test_a_healthy_course_is_silent(seed: int, window: int) -> None:
    assert told(nothing, window=window, seed=seed) == {}


@pytest.mark.parametrize("seed", range(5))
def test_a_converged_course_is_silent_at_a_constant_rate(seed: int) -> None:
    assert told(lambda step, noise: {"lr": 1e-3, "loss": 2 + 7 * math.exp(-step / 30) + 0.1 * noise}, seed=seed) == {}


def stuck(step: int, noise: float) -> dict[str, float]:
    return {"loss": 7 + 2 * math.exp(-step / 10) + 0.1 * noise, "lr": 1e-3}


def late(step: int, loss: float) -> dict[str, float]:
    return {"validation_loss": loss} if step % 10 == 0 else {}


PLANTED: dict[str, tuple[Course, set[tuple[str, str]]]] = {
    "stands still": (stuck, {("plateau", "warn")}),
    "stands still while it cools down": (lambda step, noise: {**stuck(step, noise), "lr": 1e-3 / step}, set()),
    "stands still while it warms up": (lambda step, noise: {**stuck(step, noise), "lr": 1e-6 * step}, set()),
    "stands still, and who knows": (lambda step, noise: {**stuck(step, noise), "chance_loss": math.nan}, set()),
    "swings": (
        lambda step, noise: {"loss": (1 + 0.15 * math.sin(step * 1.3)) * healthy(step, noise)["loss"]},
        {("loss_oscillation", "warn")},
    ),
    "swings a little": (
        lambda step, noise: {"loss": (1 + 0.03 * math.sin(step * 1.3)) * healthy(step, noise)["loss"]},
        set(),
    ),
    "jumps for some steps": (
        lambda step, noise: {"loss": healthy(step, noise)["loss"] + 1.3 * (361 <= step < 366)},
        {("loss_spike", "warn")},
    ),
    "one odd batch": (lambda step, noise: {"loss": healthy(step, noise)["loss"] + 9 * (step == 351)}, set()),
    "diverges": (
        lambda step, noise: {"loss": healthy(step, noise)["loss"] + 0.1 * max(0, step - 300)},
        {("loss_spike", "warn"), ("loss_spike", "fail"), ("loss_divergence", "warn")},
    ),
    "runs away": (
        lambda step, noise: {"loss": healthy(step, noise)["loss"] + 0.3 * max(0, step - 300)},
        {("loss_spike", "fail"), ("loss_divergence", "warn"), ("loss_divergence", "fail")},
    ),
    "runs away, and who knows what is much": (
        lambda step, noise: {
            "loss": healthy(step, noise)["loss"] * 1.05 ** max(0, step - 340),
            "chance_loss": math.nan,
        },
        {("loss_spike", "fail"), ("loss_divergence", "warn")},
    ),
    "runs away from the first step": (
        lambda step, noise: {"loss": min(9 * 1.2**step, 1e6)},
        {("loss_divergence", "fail"), ("loss_spike", "fail")},
    ),
    "began too wide": (
        lambda step, noise: {"loss": healthy(step, noise)["loss"] + 300 * math.exp(-step / 60)},
        set(),
    ),
    "falls below zero": (lambda step, noise: {"loss": healthy(step, noise)["loss"] - 8}, set()),
    "is learned by heart": (
        lambda step, noise: {"lr": 1e-3, **late(step, 3.1 + 4 * math.exp(-step / 20) + 0.004 * max(0, step - 150))},
        {("overfitting", "warn"), ("overfitting", "fail")},
    ),
    "held out wavers": (lambda step, noise: late(step, 3.2 + 6 * math.exp(-step / 80) + 0.05 * noise), set()),
    "held out is another kind": (
        lambda step, noise: late(step, 1.3 * healthy(step, 0.0)["loss"]),
        {("validation_gap", "warn")},
    ),
    "predicts one token for sure": (
        lambda step, noise: {"output_top_share": 1.0, "output_entropy": 0.01} if step > 300 else {},
        {("outputs_alike", "warn"), ("outputs_alike", "fail")},
    ),
    "predicts one token for long": (
        lambda step, noise: {"output_top_share": 0.97, "output_entropy": 0.7},
        {("outputs_alike", "warn")},
    ),
    "gradients explode": (
        lambda step, noise: {"gradient_norm": 400.0} if step > 300 else {},
        {("gradient_scale", "warn"), ("gradient_scale", "fail"), ("clipping", "warn")},
    ),
    "gradients vanish": (
        lambda step, noise: {
            **stuck(step, noise),
            "lr": 1e-3 / step,
            **({"gradient_norm": 1e-5} if step > 300 else {}),
        },
        {("gradient_scale", "warn"), ("gradient_scale", "fail")},
    ),
    "nothing left to learn": (
        lambda step, noise: {"gradient_norm": 1e-5} if step > 300 else {},
        set(),
    ),
    "clipped to a hundredth": (lambda step, noise: {"gradient_norm_limit": 0.01}, {("clipping", "warn")}),
    "never clipped": (lambda step, noise: {"gradient_norm_limit": 1e3}, set()),
    "batch doubled": (
        lambda step, noise: {"lr": 1e-3, "batch_size": 16 if step <= 200 else 32},
        {("rate_for_batch", "warn")},
    ),
    "batch doubled with the root of it": (
        lambda step, noise: {"lr": 1e-3 if step <= 200 else 1.4e-3, "batch_size": 16 if step <= 200 else 32},
        set(),
    ),
    "batch halved": (
        lambda step, noise: {"lr": 1e-3, "batch_size": 16 if step <= 200 else 8},
        {("rate_for_batch", "warn")},
    ),
    "last batch of an epoch": (lambda step, noise: {"lr": 1e-3, "batch_size": 3 if step == 200 else 16}, set()),
    "skips a third": (lambda step, noise: {"skipped": float(step % 3 == 0)}, {("skipped_steps", "warn")}),
    "skips all": (lambda step, noise: {"skipped": 1.0}, {("skipped_steps", "warn"), ("skipped_steps", "fail")}),
}


@pytest.mark.parametrize("case", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(case: str) -> None:
    course, wanted = PLANTED[case]
    found = told(course)
    graver = {check for check, status in wanted if status == "fail"}
    assert {key for key in found if key[1] == "fail"} == {(check, "fail") for check in graver}
    assert {check for check, _ in found} == {check for check, _ in wanted}


def test_reasons_say_what_was_seen() -> None:
    reasons = {case: [reason for _, reason in told(PLANTED[case][0]).values()] for case in PLANTED}
    assert any("near the 9 of a blind guess" in reason for reason in reasons["stands still"])
    assert any("once in 4.8" in reason for reason in reasons["swings"])
    assert any("from 16 to 32" in reason for reason in reasons["batch doubled"])
    assert any("100% of the steps are clipped" in reason for reason in reasons["clipped to a hundredth"])
    assert all(reason.endswith(".") for found in reasons.values() for reason in found)


@pytest.mark.parametrize("check", CHECKS)
def test_where_nothing_was_measured_nothing_is_asked(check: str) -> None:
    window = Window([registered(Statistic)[name]() for name in ("training", "loss_course", "gradients", "outputs")])
    window.update(TrainingStep(1))
    snapshot = window.snapshot(Space("m", "training"), step=1, role="training")
    assert get(Check, check)().applies(snapshot) == (check == "skipped_steps")


def test_a_course_leaves_out_what_was_gone_over_again() -> None:
    def at(step: int | None, loss: float | None) -> Snapshot:
        statistic: Any = registered(Statistic)["training"]()
        statistic.update(TrainingStep(step or 0, {} if loss is None else {"loss": loss}))
        window = Window([statistic])
        return window.snapshot(Space("m", "training"), step=step, role="training")

    past = History([at(10, 1.0), at(20, 2.0), at(30, 3.0), at(20, 4.0), at(None, 9.0), at(25, None)])
    assert course_of("loss_mean", at(40, 5.0), past) == [(10, 1.0), (20, 4.0), (40, 5.0)]
    assert course_of("loss_mean", at(None, 5.0), None) == []
