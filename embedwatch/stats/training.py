"""Loss, learning rate and size of training steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import TrainingStep
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, BatchStatistic, Latest

FIRST_STEP = 1
"""Up to this step a loss says how the model began: some count from 0, some from 1."""

LOSS = Metric("loss_mean", "Mean loss of the steps.")
LAST = Metric("loss_last", "Loss of the last step.")
VALIDATION = Metric("validation_loss", "Last loss on what is held out.")
RATE = Metric("learning_rate", "Last learning rate.")
BATCH = Metric("batch_size", "Last number of sequences in a step.", "sequences", digits=9, headline=False)
CHANCE = Metric("chance_loss", "Loss of a blind guess, ln V, where that is known.", headline=False)
GRADIENT = Metric("gradient_norm_mean", "Mean norm of the gradient of the steps, before clipping.")
STEPS = Metric("steps_total", "Training steps.", "steps", "counter", digits=9)
NONFINITE = Metric(
    "nonfinite_losses_total", "Steps whose loss is NaN or infinite.", "steps", "counter", healthy="0", digits=9
)
INITIAL = Metric(
    "initial_loss_ratio",
    "Loss of the first step over ln V, which is that of a blind guess; missing once training is under way.",
    healthy="near 1",
)

MEANS = {"loss": LOSS, "gradient_norm": GRADIENT}
LATEST = {"loss": LAST, "validation_loss": VALIDATION, "lr": RATE, "batch_size": BATCH, "chance_loss": CHANCE}
"""Scalar of a step to what is measured of it."""


class Training(BatchStatistic[TrainingStep]):
    """Loss, learning rate, batch size and gradient of training steps, and how the training began.

    A scalar that is missing, NaN or infinite is left out, and a loss that is not finite is counted. The last value is
    that of the highest step that has one, in whatever order steps come; where several ranks note the same step, the
    mean over them, and each counts as one step. The scalar `chance_loss` is ln V, in the unit of the loss: what a model
    pays that gives all V tokens the same probability.

    Shape: batches of one step.
    State: sums and counts, five last values and the first loss; merge exact.
    NaN, Inf, empty: counted for the loss, else left out; `None` without a value.

    Example:
        >>> statistic = Training()
        >>> for step, loss in enumerate((7.0, math.nan, 5.0)):
        ...     statistic.update(TrainingStep(step, {"loss": loss, "chance_loss": math.log(1_000)}))
        >>> found = {m.name: m.value for m in statistic.compute()}
        >>> found["loss_mean"], found["nonfinite_losses_total"], round(found["initial_loss_ratio"], 3)
        (6.0, 1, 1.013)
    """

    name = "training"
    title = "loss and learning rate"
    consumes = "steps"
    scalars = tuple({**MEANS, **LATEST})
    metrics = (LOSS, LAST, VALIDATION, RATE, BATCH, CHANCE, GRADIENT, STEPS, NONFINITE, INITIAL)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._sums = self.keep("sums", Additive(sums=dict.fromkeys(MEANS, ())))
        self._counts = self.keep("counts", Additive(counts=dict.fromkeys((*MEANS, "steps", "nonfinite"), ())))
        self._latest = {name: self.keep(name, Latest()) for name in LATEST}
        self._first = self.keep("first", Latest())

    def add(self, batch: TrainingStep) -> None:
        """Add a step."""
        finite = {name: float(value) for name, value in batch.scalars.items() if math.isfinite(value)}
        self._counts.add("steps", 1)
        if "loss" in batch.scalars and "loss" not in finite:
            self._counts.add("nonfinite", 1)
        for name in MEANS.keys() & finite.keys():
            self._sums.add(name, finite[name])
            self._counts.add(name, 1)
        for name in LATEST.keys() & finite.keys():
            self._latest[name].note(batch.step, finite[name])
        if batch.step <= FIRST_STEP and "loss" in finite and finite.get("chance_loss", 0.0) > 0:
            self._first.note(-batch.step, finite["loss"] / finite["chance_loss"])  # the latest counted backwards

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return [
            *(metric.measure(self._mean(name)) for name, metric in MEANS.items()),
            *(metric.measure(self._latest[name].number) for name, metric in LATEST.items()),
            STEPS.measure(int(self._counts["steps"])),
            NONFINITE.measure(int(self._counts["nonfinite"])),
            INITIAL.measure(self._first.number),
        ]

    def _mean(self, name: str) -> float | None:
        count = int(self._counts[name])
        return float(self._sums[name]) / count if count else None

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all steps at once."""
        steps = [batch] if isinstance(batch, TrainingStep) else list(batch)
        losses = _finite(steps, "loss")
        early = [step for step in steps if step.step <= FIRST_STEP and step.scalars.get("chance_loss", 0.0) > 0]
        ratios = [
            TrainingStep(each.step, {"ratio": each.scalars["loss"] / each.scalars["chance_loss"]})
            for each in early
            if "loss" in each.scalars
        ]
        return {
            **{metric.name: _mean([v for _, v in _finite(steps, name)]) for name, metric in MEANS.items()},
            **{metric.name: _last(_finite(steps, name)) for name, metric in LATEST.items()},
            STEPS.name: len(steps),
            NONFINITE.name: sum("loss" in step.scalars for step in steps) - len(losses),
            INITIAL.name: _last([(-step, ratio) for step, ratio in _finite(ratios, "ratio")]),
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Training, Sequence[TrainingStep]]]:
        """Yield steps from the first on, steps of two ranks with gaps and losses that are no numbers, silent ones."""
        noise = torch.rand(24, generator=torch.Generator().manual_seed(seed)).tolist()
        yield (
            cls(),
            [
                TrainingStep(step, {"loss": 8 - 0.1 * step + x, "lr": 1e-3 * x, "batch_size": 16, "chance_loss": 7.5})
                for step, x in enumerate(noise)
            ],
        )
        ranks = [
            TrainingStep(500 + step // 2, {"loss": 2 + x, "gradient_norm": 1 + x, "validation_loss": 3 - x})
            for step, x in enumerate(noise)
        ]
        ranks[4].scalars["loss"], ranks[5].scalars["loss"], ranks[-1].scalars["loss"] = math.nan, math.inf, -math.inf
        del ranks[7].scalars["loss"], ranks[-2].scalars["validation_loss"]
        yield cls(), ranks
        yield cls(), [TrainingStep(step) for step in range(5)]


def _finite(steps: Sequence[TrainingStep], name: str) -> list[tuple[int, float]]:
    """Return step and number wherever one scalar is there and finite."""
    return [(step.step, step.scalars[name]) for step in steps if math.isfinite(step.scalars.get(name, math.nan))]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _last(points: Sequence[tuple[int, float]]) -> float | None:
    highest = max((step for step, _ in points), default=0)
    return _mean([value for step, value in points if step == highest])
