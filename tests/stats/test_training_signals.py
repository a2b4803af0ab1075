"""Signals of training: the course of the loss, gradients and clipping, what is predicted."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from embedwatch.batch import TrainingStep
from embedwatch.core import MergeError, Statistic, UsageError
from embedwatch.core.registry import get
from embedwatch.geometry.series import noise, rise, wave
from embedwatch.sketches import Means, Recent


def normal(count: int, *, seed: int = 0, follows: float = 0.0) -> list[float]:
    """Noise around 5 in which each number follows the one before."""
    found = [0.0]
    for draw in torch.randn(count, generator=torch.Generator().manual_seed(seed)).tolist():
        found.append(follows * found[-1] + draw)
    return [5 + value for value in found[1:]]


def measured(name: str, steps: list[dict[str, float]]) -> dict[str, float | None]:
    statistic: Statistic[Any] = get(Statistic, name)()
    for step, scalars in enumerate(steps):
        statistic.update(TrainingStep(step, scalars))
    return {measurement.name: measurement.number for measurement in statistic.compute()}


def losses(values: list[float]) -> dict[str, float | None]:
    return measured("loss_course", [{"loss": value} for value in values])


@pytest.mark.parametrize("count", [20, 100, 400])
@pytest.mark.parametrize("slope", [0.0, -0.05])
def test_noise_is_that_of_the_steps_and_not_of_the_course(count: int, slope: float) -> None:
    found = [noise([x + slope * place for place, x in enumerate(normal(count, seed=seed))]) for seed in range(50)]
    assert sum(value for value in found if value is not None) / len(found) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("follows", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [30, 60, 100])
def test_noise_holds_no_wave_and_no_rise(count: int, follows: float) -> None:
    waves = [wave(normal(count, seed=seed, follows=follows)) for seed in range(60)]
    rises = [rise(normal(count, seed=seed, follows=follows)) for seed in range(60)]
    chances = [found.chance for found in waves if found is not None]
    assert len(chances) == 60
    assert sum(chance < 0.05 for chance in chances) <= 9, "3 of 60 are to be expected"
    assert min(chances) > 1e-5, "what a wave must have"
    assert max(found.score for found in rises if found is not None) < 8


@pytest.mark.parametrize("period", [2.0, 2.5, 5.0, 12.0])
def test_a_wave_is_found_with_its_period_and_height(period: float) -> None:
    values = [
        5 - 0.02 * step + 0.5 * math.cos(2 * math.pi * step / period) + 0.1 * (x - 5)
        for step, x in enumerate(normal(60, seed=3))
    ]
    found = losses(values)
    assert found["loss_wave_period"] == pytest.approx(period, rel=0.06)
    assert found["loss_wave_ratio"] == pytest.approx(1 / (sum(values) / 60), rel=0.15)


def test_a_course_without_waves_has_none() -> None:
    falling = [2 + 5 * math.exp(-step / 20) + 0.05 * (x - 5) for step, x in enumerate(normal(100))]
    found = losses(falling)
    assert (found["loss_wave_ratio"], found["loss_spike_ratio"], found["loss_wave_period"]) == (0.0, 0.0, None)


def test_a_rise_that_stays_is_found_and_one_odd_batch_is_not() -> None:
    usual = [4 + 0.1 * (x - 5) for x in normal(60)]
    odd = [9.0 if step == 30 else loss for step, loss in enumerate(usual)]
    risen = [loss + 2 if 30 <= step < 36 else loss for step, loss in enumerate(usual)]
    assert losses(usual)["loss_spike_ratio"] == losses(odd)["loss_spike_ratio"] == 0.0
    assert losses(risen)["loss_spike_ratio"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("values", [[], [1.0], [2.0] * 40, [math.nan] * 40, [-3.0, -2.0] * 20])
def test_where_nothing_can_be_said_there_is_no_number(values: list[float]) -> None:
    found = losses(values)
    assert found["loss_spike_ratio"] is None
    assert found["loss_wave_ratio"] is None


def test_the_last_steps_are_kept_whatever_the_order_and_the_parts() -> None:
    whole, parts = Recent(5), [Recent(5), Recent(5)]
    for step in torch.randperm(100, generator=torch.Generator().manual_seed(0)).tolist():
        for rank in (0, 1):
            whole.note(step, step + rank)
            parts[rank].note(step, step + rank)
    parts[0].merge(parts[1])
    assert whole.course == parts[0].course == [(step, step + 0.5) for step in range(95, 100)]
    assert len(whole.state()["steps"]) == 5


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": torch.tensor([3, 3])},
        {"steps": torch.tensor([-1, 3])},
        {"counts": torch.tensor([0, 1])},
        {"totals": torch.tensor([1.0, math.inf]).double()},
        {"totals": torch.ones(3).double()},
        {"steps": torch.arange(9), "totals": torch.ones(9).double(), "counts": torch.ones(9).long()},
    ],
)
def test_a_damaged_record_is_refused(damage: dict[str, Any]) -> None:
    sketch = Recent(5)
    sketch.note(1, 1.0)
    sketch.note(3, 1.0)
    with pytest.raises(MergeError):
        Recent(5).load({**sketch.state(), **damage}, 1)


def test_a_record_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="`capacity` must be at least 1, got 0"):
        Recent(0)


def test_means_have_each_its_own_count() -> None:
    means = Means(["a", "b"])
    means.note("a", 1.0)
    means.note("a", 2.0)
    other = Means(["a", "b"])
    other.note("b", 7.0)
    means.merge(other)
    assert (means.mean("a"), means.mean("b")) == (1.5, 7.0)


def test_clipping_is_told_by_the_limit() -> None:
    norms = (0.5, 1.0, 2.0, 8.0)
    found = measured("gradients", [{"gradient_norm": norm, "gradient_norm_limit": 1.0} for norm in norms])
    assert found["clipped_steps_ratio"] == 0.5
    assert found["gradient_excess_ratio"] == pytest.approx((0.5 * 1 * 2 * 8) ** 0.25)
    assert found["gradient_norm_applied_mean"] == pytest.approx(3.5 / 4)
    assert found["gradient_norm_limit"] == 1.0


def test_clipping_is_told_by_what_is_left() -> None:
    steps = [{"gradient_norm": norm, "gradient_norm_applied": min(norm, 2.0)} for norm in (1.0, 4.0, 8.0)]
    found = measured("gradients", steps)
    assert found["clipped_steps_ratio"] == pytest.approx(2 / 3)
    assert found["gradient_excess_ratio"] == pytest.approx(2.0)
    assert found["gradient_norm_limit"] is None


def test_what_half_precision_rounds_is_not_clipped() -> None:
    found = measured("gradients", [{"gradient_norm": 1.0, "gradient_norm_applied": 0.9995}])
    assert found["clipped_steps_ratio"] == 0.0


def test_skipped_steps_are_counted_and_say_nothing_of_clipping() -> None:
    steps = [{"gradient_norm": math.inf, "gradient_norm_limit": 1.0, "skipped": 1.0}, {"skipped": 0.0}, {}]
    found = measured("gradients", steps)
    assert found["skipped_steps_total"] == 1
    assert found["clipped_steps_ratio"] is None


def test_predictions_are_averaged_over_the_steps_that_were_looked_at() -> None:
    found = measured("outputs", [{"output_entropy": 0.5, "output_top_share": 1.0}, {}, {"output_entropy": math.nan}])
    assert found == {"output_entropy_ratio": 0.5, "output_top_share_ratio": 1.0}
