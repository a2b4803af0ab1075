"""Whether the learning rate leaps up for a step or two and comes back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from embedwatch.batch import TrainingStep
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import BatchStatistic, Recent

STEPS = 512
"""So many steps of a window are remembered, the last ones."""
AROUND = 8
"""A rate is held against the median of so many before it, and of so many after it."""
LEAST = 4
"""Of these so many must be there on each side."""
FACTOR = 5.0
"""A kick is so many times higher than both."""

KICKS = Metric(
    "learning_rate_kicks_total",
    f"Steps whose learning rate is {FACTOR:g} times the median before and after it, of {AROUND} steps each.",
    "steps",
    "counter",
    healthy="0",
    digits=9,
)


class RateCourse(BatchStatistic[TrainingStep]):
    """Counts the steps at which the learning rate leaps up and comes back.

    `rate_t ≥ 5 · median(rate_{t-8} … rate_{t-1})`, and the same of the eight after it. A warm restart leaps up and
    stays there, falling slowly; a cycle climbs and falls; neither stands out from both sides. Steps near an end of the
    window have no two sides, and are not counted.

    Shape: batches of one step.
    State: the rates of the last 512 steps; merge exact.
    NaN, Inf, empty: left out; `None` for fewer than nine rates.
    References: Loshchilov & Hutter 2017, "SGDR", https://arxiv.org/abs/1608.03983; Smith 2017, "Cyclical learning
    rates", https://arxiv.org/abs/1506.01186: what is no kick.

    Example:
        >>> statistic = RateCourse()
        >>> for step in range(40):
        ...     statistic.update(TrainingStep(step, {"lr": 0.3 if step % 8 == 4 else 0.001}))
        >>> statistic.compute()[0].value
        4
    """

    name = "rate_course"
    title = "course of the learning rate"
    consumes = "steps"
    scalars = ("lr",)
    metrics = (KICKS,)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._rates = self.keep("rates", Recent(STEPS))

    def add(self, batch: TrainingStep) -> None:
        """Add a step."""
        rate = batch.scalars.get("lr", math.nan)
        if math.isfinite(rate):
            self._rates.note(batch.step, float(rate))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        rates = [rate for _, rate in self._rates.course]
        if len(rates) <= 2 * LEAST:
            return [KICKS.measure(None)]
        return [KICKS.measure(sum(_is_kick(rates, place) for place in range(len(rates))))]

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all steps at once."""
        steps = [batch] if isinstance(batch, TrainingStep) else list(batch)
        held: dict[int, list[float]] = {}
        for each in steps:
            if math.isfinite(each.scalars.get("lr", math.nan)):
                held.setdefault(each.step, []).append(each.scalars["lr"])
        rates = [math.fsum(held[step]) / len(held[step]) for step in sorted(held)[-STEPS:]]
        if len(rates) <= 2 * LEAST:
            return {KICKS.name: None}
        found = 0
        for place, rate in enumerate(rates):
            sides = rates[max(place - AROUND, 0) : place], rates[place + 1 : place + 1 + AROUND]
            found += all(len(side) >= LEAST and rate >= FACTOR * median(side) > 0 for side in sides)
        return {KICKS.name: found}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[RateCourse, Sequence[TrainingStep]]]:
        """Yield a rate with kicks, a warm restart on two ranks, too few steps."""
        yield cls(), [TrainingStep(step, {"lr": 0.3 if step % 9 == seed % 9 else 1e-3}) for step in range(50)]
        restart = [1e-3 * (1 + math.cos(math.pi * (step % 20) / 20)) + 1e-6 for step in range(60)]
        yield cls(), [TrainingStep(step // 2, {"lr": rate}) for step, rate in enumerate(restart)]
        yield cls(), [TrainingStep(3, {"lr": 2.0}), TrainingStep(4)]


def _is_kick(rates: Sequence[float], place: int) -> bool:
    before, after = rates[max(place - AROUND, 0) : place], rates[place + 1 : place + 1 + AROUND]
    if min(len(before), len(after)) < LEAST:
        return False
    low, high = sorted((median(before), median(after)))
    return low > 0 and rates[place] >= FACTOR * high
