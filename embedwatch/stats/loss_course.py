"""How the loss goes from step to step: its middle, its noise, rises that stay, waves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import torch

from embedwatch.batch import TrainingStep
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.geometry.series import Wave, noise, rise, wave
from embedwatch.sketches import BatchStatistic, Recent

STEPS = 512
"""So many steps of a window are remembered, the last ones: five windows of the usual length."""
SCORE = 8.0
"""A rise counts beyond so many standard deviations: of 16,000 courses of noise in which each number follows the one
before (AR(1), 0.5 and 0.9), 20 to 100 numbers long, none came beyond 7.3."""
CHANCE = 1e-5
"""A wave counts that noise would hold once in a hundred thousand windows."""

MEDIAN = Metric("loss_median", f"Median loss of the steps, of at most the last {STEPS}.", headline=False)
NOISE = Metric("loss_noise", "Standard deviation of the loss of single steps around its course.")
RISE = Metric(
    "loss_spike_ratio",
    "Height of the loss's largest rise that lasts some steps, over the loss before; 0 where none stands out.",
    healthy="0",
)
WAVE = Metric(
    "loss_wave_ratio",
    "Height of the wave in the loss from trough to crest, over the mean loss; 0 where none stands out.",
    healthy="0",
)
PERIOD = Metric("loss_wave_period", "Steps from crest to crest of the wave in the loss.", "steps", headline=False)


class LossCourse(BatchStatistic[TrainingStep]):
    """The course of the loss within a window: its middle, its noise, and whether a rise or a wave stands out from it.

    A rise is that of the median of three steps above the median of up to 32 before: one odd batch is none. A wave is
    the strongest frequency in what a cubic leaves, tested against noise in which each number follows the one before.

    Shape: batches of one step.
    Range: 0 and above.
    State: the losses of the last 512 steps; merge exact.
    NaN, Inf, empty: left out; `None` for too few steps, none for the median, fewer than 8 for the noise, 20 for a rise,
    24 for a wave, and where the loss is not above zero.
    References: Takase et al. 2023, "Spike No More", https://arxiv.org/abs/2312.16903; Fisher 1929, "Tests of
    significance in harmonic analysis".

    Example:
        >>> statistic = LossCourse()
        >>> for step in range(40):
        ...     statistic.update(TrainingStep(step, {"loss": 4.0 + 0.5 * (-1) ** step + 0.01 * (step % 7)}))
        >>> found = {m.name: m.value for m in statistic.compute()}
        >>> round(found["loss_wave_ratio"], 2), found["loss_wave_period"], found["loss_spike_ratio"]
        (0.25, 2.0, 0.0)
    """

    name = "loss_course"
    title = "course of the loss"
    consumes = "steps"
    scalars = ("loss",)
    metrics = (MEDIAN, NOISE, RISE, WAVE, PERIOD)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._losses = self.keep("losses", Recent(STEPS))

    def add(self, batch: TrainingStep) -> None:
        """Add a step."""
        loss = batch.scalars.get("loss", math.nan)
        if math.isfinite(loss):
            self._losses.note(batch.step, float(loss))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        losses = [loss for _, loss in self._losses.course]
        found = wave(losses)
        stands_out = found is not None and found.chance < CHANCE
        period = found.period * self._stride if found is not None and stands_out else None
        return [
            MEDIAN.measure(median(losses) if losses else None),
            NOISE.measure(noise(losses)),
            RISE.measure(_rise_ratio(losses)),
            WAVE.measure(_wave_ratio(losses, found)),
            PERIOD.measure(period),
        ]

    @property
    def _stride(self) -> float:
        """Steps from one loss to the next, on average: some trainers say it at some steps only."""
        course = self._losses.course
        return (course[-1][0] - course[0][0]) / (len(course) - 1)

    def exhibits(self) -> list[Exhibit]:
        """Return the losses, step by step."""
        caption = "Loss of each step of the window, at most the last 512."
        return [Exhibit.build("loss_course", "curve", caption, ("step", "loss"), self._losses.course)]

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all steps at once."""
        steps = [batch] if isinstance(batch, TrainingStep) else list(batch)
        known = [each for each in steps if math.isfinite(each.scalars.get("loss", math.nan))]
        numbers = sorted({each.step for each in known})[-STEPS:]
        held: dict[int, list[float]] = {number: [] for number in numbers}
        for each in known:
            if each.step in held:
                held[each.step].append(each.scalars["loss"])
        losses = [math.fsum(values) / len(values) for values in held.values()]
        found = wave(losses)
        stride = (numbers[-1] - numbers[0]) / (len(numbers) - 1) if len(numbers) > 1 else 1.0
        return {
            MEDIAN.name: median(losses) if losses else None,
            NOISE.name: noise(losses),
            RISE.name: _rise_ratio(losses),
            WAVE.name: _wave_ratio(losses, found),
            PERIOD.name: found.period * stride if found is not None and found.chance < CHANCE else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[LossCourse, Sequence[TrainingStep]]]:
        """Yield a loss that falls, one with a wave and a rise on two ranks, one step alone."""
        noises = torch.randn(60, generator=torch.Generator().manual_seed(seed)).tolist()
        yield cls(), [TrainingStep(step, {"loss": 6 - 0.05 * step + 0.1 * x}) for step, x in enumerate(noises[:30])]
        waves = [5 + math.sin(step // 2) + 0.05 * x + 9 * (40 <= step < 52) for step, x in enumerate(noises)]
        yield cls(), [TrainingStep(900 + step // 2, {"loss": loss, "lr": 0.1}) for step, loss in enumerate(waves)]
        yield cls(), [TrainingStep(3, {"loss": 2.0}), TrainingStep(4)]


def _rise_ratio(losses: Sequence[float]) -> float | None:
    found = rise(losses)
    if found is None or found.before <= 0:
        return None
    return found.by / found.before if found.score > SCORE else 0.0


def _wave_ratio(losses: Sequence[float], found: Wave | None) -> float | None:
    level = math.fsum(losses) / len(losses) if losses else 0.0
    if found is None or level <= 0:
        return None
    return found.height / level if found.chance < CHANCE else 0.0
