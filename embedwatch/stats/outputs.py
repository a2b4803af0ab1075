"""What a model that predicts tokens puts out: how sure it is, and whether it says anything but one token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import TrainingStep
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import BatchStatistic, Means

ENTROPY = Metric(
    "output_entropy_ratio", "Mean entropy of the predicted distributions over ln V.", healthy="falls from 1, above 0"
)
SHARE = Metric(
    "output_top_share_ratio", "Share of the positions at which the same token is the likeliest.", healthy="below 0.5"
)
METRICS = {"output_entropy": ENTROPY, "output_top_share": SHARE}
"""Scalar of a step to the mean of it."""


class Outputs(BatchStatistic[TrainingStep]):
    """Entropy of what a model predicts, and the share of the positions at which it predicts the same token.

    Both come from a few rows of logits at the steps that are looked at. Training goes through a time in which the most
    frequent token is predicted everywhere: the share is near 1 then, but the entropy is that of single tokens.

    Formula: `-Σ p ln p / ln V`, mean over rows; `max over tokens of the rows with this argmax / rows`.
    Shape: batches of one step.
    Range: 0 to 1.
    State: sums and counts; merge exact to rounding.
    NaN, Inf, empty: left out; `None` where no step was looked at.

    Example:
        >>> statistic = Outputs()
        >>> statistic.update(TrainingStep(1, {"output_entropy": 0.9, "output_top_share": 1.0}))
        >>> statistic.update(TrainingStep(2, {"output_entropy": 0.7, "output_top_share": 0.5}))
        >>> [round(m.value, 3) for m in statistic.compute()]
        [0.8, 0.75]
    """

    name = "outputs"
    title = "what is predicted"
    consumes = "steps"
    scalars = tuple(METRICS)
    metrics = tuple(METRICS.values())
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._means = self.keep("means", Means(METRICS))

    def add(self, batch: TrainingStep) -> None:
        """Add a step."""
        for name in METRICS:
            value = batch.scalars.get(name, math.nan)
            if math.isfinite(value):
                self._means.note(name, float(value))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        return [metric.measure(self._means.mean(name)) for name, metric in METRICS.items()]

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all steps at once."""
        steps = [batch] if isinstance(batch, TrainingStep) else list(batch)
        found: dict[str, float | None] = {}
        for name, metric in METRICS.items():
            values = [step.scalars[name] for step in steps if math.isfinite(step.scalars.get(name, math.nan))]
            found[metric.name] = math.fsum(values) / len(values) if values else None
        return found

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Outputs, Sequence[TrainingStep]]]:
        """Yield steps of which every third was looked at, and some of which none was."""
        draws = torch.rand(24, generator=torch.Generator().manual_seed(seed)).tolist()
        yield (
            cls(),
            [
                TrainingStep(step, {"output_entropy": x, "output_top_share": 1 - x} if step % 3 == 0 else {})
                for step, x in enumerate(draws)
            ],
        )
        yield cls(), [TrainingStep(step, {"loss": 1.0}) for step in range(5)]
