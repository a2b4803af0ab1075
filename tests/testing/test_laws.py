"""The law suite itself: every planted fault must be caught, and a sound Statistic must pass.

The first five are the faults that released libraries ship: variances of parts combined with a minus sign, parts with
n ≤ ddof dropped, two empty parts divided by zero, means weighted by the number of updates, a sample that depends on
order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
import torch

from embedwatch.batch import TokenBatch, TrainingStep, VectorBatch
from embedwatch.core.errors import MergeError
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.core.statistic import Statistic
from embedwatch.sketches import Additive, BatchStatistic, Extremes, Latest, example_batches, example_tokens
from embedwatch.testing import STATISTIC_LAWS, LawViolation, obey

MEAN = Metric("first_mean", "Mean of the first dimension.")
VARIANCE = Metric("first_variance", "Variance of the first dimension.")


class Sound(Statistic[VectorBatch], register=False):
    """Mean and variance of the first dimension, written plainly."""

    name = "sound"
    metrics = (MEAN, VARIANCE)

    def __init__(self) -> None:
        self.dimension: int | None = None
        self.n = 0
        self.mean = 0.0
        self.m2 = 0.0

    def settings(self) -> dict[str, Any]:
        return {}

    def update(self, batch: VectorBatch) -> None:
        self._fit(batch.dimension)
        values = batch.clean.rows[:, 0].double()
        if len(values):
            self._combine(len(values), float(values.mean()), float((values - values.mean()).square().sum()))

    def _fit(self, dimension: int) -> None:
        if self.dimension not in (None, dimension):
            raise MergeError(f"rows must have {self.dimension} dimensions, got {dimension}; use one for each space")
        self.dimension = dimension

    def _combine(self, n: int, mean: float, m2: float) -> None:
        total = self.n + n
        delta = mean - self.mean
        self.m2 += m2 + delta * delta * self.n * n / total
        self.mean += delta * n / total
        self.n = total

    def merge(self, other: Statistic[VectorBatch]) -> None:
        self.check_mergeable(other)
        if other.dimension is not None:
            self._fit(other.dimension)
        if other.n:
            self._combine(other.n, other.mean, other.m2)

    def compute(self) -> list[Measurement]:
        return [
            MEAN.measure(self.mean if self.n else None),
            VARIANCE.measure(self.m2 / (self.n - 1) if self.n > 1 else None),
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"dimension": self.dimension, "n": self.n, "mean": self.mean, "m2": self.m2}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not all(isinstance(state.get(key), int | float) for key in ("n", "mean", "m2")) or state["n"] < 0:
            raise MergeError("the state is damaged")
        if not isinstance(state.get("dimension", "nothing"), int | None) or (state["dimension"] or 1) < 1:
            raise MergeError("the state is damaged")
        self.dimension, self.n, self.mean, self.m2 = (state[key] for key in ("dimension", "n", "mean", "m2"))

    def memory(self, dimension: int) -> int:
        return 32

    def oracle(self, batch: VectorBatch) -> Mapping[str, float | None]:
        values = batch.rows[batch.rows.isfinite().all(1), 0].double()
        return {
            MEAN.name: float(values.mean()) if len(values) else None,
            VARIANCE.name: float(values.var()) if len(values) > 1 else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Statistic[VectorBatch], Sequence[VectorBatch]]]:
        yield cls(), example_batches(seed, dimension=3)


class MinusSign(Sound, register=False):
    def _combine(self, n: int, mean: float, m2: float) -> None:
        before, delta, total = self.n, mean - self.mean, self.n + n
        super()._combine(n, mean, m2)
        self.m2 -= 2 * delta * delta * before * n / total


class DropsSmallParts(Sound, register=False):
    def merge(self, other: Statistic[VectorBatch]) -> None:
        if not isinstance(other, Sound) or other.n > 1 or other.n == 0:
            super().merge(other)


class DividesEmptyByEmpty(Sound, register=False):
    def merge(self, other: Statistic[VectorBatch]) -> None:
        self.check_mergeable(other)
        self.mean = (self.mean * self.n + other.mean * other.n) / (self.n + other.n)
        self.n += other.n


class WeighsByUpdates(Sound, register=False):
    def __init__(self) -> None:
        super().__init__()
        self.updates = 0

    def update(self, batch: VectorBatch) -> None:
        super().update(batch)
        self.updates += 1

    def merge(self, other: Statistic[VectorBatch]) -> None:
        mine, theirs = self.updates, getattr(other, "updates", 0)
        before, means = self.n, (self.mean, getattr(other, "mean", 0.0))
        super().merge(other)
        if before and other.n:
            self.mean = (means[0] * mine + means[1] * theirs) / (mine + theirs)
        self.updates += theirs


class KeepsTheFirst(Sound, register=False):
    """A sample of the first eight values seen: it depends on the order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []

    def update(self, batch: VectorBatch) -> None:
        self._fit(batch.dimension)
        self.kept = (self.kept + batch.clean.rows[:, 0].tolist())[:8]

    def merge(self, other: Statistic[VectorBatch]) -> None:
        self.check_mergeable(other)
        if other.dimension is not None:
            self._fit(other.dimension)
        self.kept = (self.kept + other.kept)[:8]

    def compute(self) -> list[Measurement]:
        kept = torch.tensor(self.kept, dtype=torch.float64)
        return [
            MEAN.measure(float(kept.mean()) if len(kept) else None),
            VARIANCE.measure(float(kept.var()) if len(kept) > 1 else None),
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"dimension": self.dimension, "kept": list(self.kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.dimension, self.kept = state["dimension"], list(state["kept"])

    def memory(self, dimension: int) -> int:
        return 64 + 8


class PoisonedByNan(Sound, register=False):
    def update(self, batch: VectorBatch) -> None:
        self._fit(batch.dimension)
        values = batch.rows[:, 0].double()
        if len(values):
            self._combine(len(values), float(values.mean()), float((values - values.mean()).square().sum()))


class ChangesTheBatch(Sound, register=False):
    def update(self, batch: VectorBatch) -> None:
        super().update(batch)
        batch.rows.mul_(1.0001)


class KeepsAView(Sound, register=False):
    last = torch.zeros(0, 3)

    def update(self, batch: VectorBatch) -> None:
        super().update(batch)
        self.last = batch.rows

    def compute(self) -> list[Measurement]:
        shift = float(self.last[0, 0]) if self.n and len(self.last) else 0.0
        return [MEAN.measure(self.mean + shift if self.n else None), VARIANCE.measure(None)]


class UsesTheGlobalGenerator(Sound, register=False):
    def update(self, batch: VectorBatch) -> None:
        torch.rand(1)
        super().update(batch)


class UsesPythonsGenerator(Sound, register=False):
    def update(self, batch: VectorBatch) -> None:
        random.random()
        super().update(batch)


class Grows(Sound, register=False):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[float] = []

    def update(self, batch: VectorBatch) -> None:
        super().update(batch)
        self.all += batch.clean.rows[:, 0].tolist()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "all": self.all}


class AcceptsAnyDimension(Sound, register=False):
    def _fit(self, dimension: int) -> None:
        self.dimension = dimension


class ForgetsInItsState(Sound, register=False):
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "m2": 0.0}


class DeliversWhatItDoesNotDeclare(Sound, register=False):
    metrics = (MEAN,)


class InventsANumber(Sound, register=False):
    def compute(self) -> list[Measurement]:
        return [MEAN.measure(self.mean + 1.0), VARIANCE.measure(None)]


class ShrinksTheOther(Sound, register=False):
    def merge(self, other: Statistic[VectorBatch]) -> None:
        super().merge(other)
        other.n, other.mean, other.m2 = 0, 0.0, 0.0


PLANTED: list[tuple[type[Sound], str]] = [
    (MinusSign, "merge"),
    (DropsSmallParts, "merge"),
    (DividesEmptyByEmpty, "identity"),
    (WeighsByUpdates, "merge"),
    (KeepsTheFirst, "split"),
    (KeepsTheFirst, "order"),
    (PoisonedByNan, "defects"),
    (ChangesTheBatch, "purity"),
    (KeepsAView, "purity"),
    (UsesTheGlobalGenerator, "purity"),
    (UsesPythonsGenerator, "purity"),
    (Grows, "memory"),
    (AcceptsAnyDimension, "refusal"),
    (ForgetsInItsState, "state"),
    (DeliversWhatItDoesNotDeclare, "declaration"),
    (InventsANumber, "declaration"),
    (ShrinksTheOther, "purity"),
]


@pytest.mark.parametrize("law", STATISTIC_LAWS)
def test_a_sound_statistic_passes(law: str) -> None:
    obey(law, Sound)


@pytest.mark.parametrize(("broken", "law"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_fault_is_caught(broken: type[Sound], law: str) -> None:
    with pytest.raises((LawViolation, ZeroDivisionError)):
        obey(law, broken, examples=40)


class Longest(BatchStatistic[TokenBatch], register=False):
    """The largest norm of a table's rows, and the mean drift, written plainly."""

    name = "longest"
    consumes = "tokens"
    metrics = (MEAN, VARIANCE)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.keep("largest", Extremes(1))
        self.totals = self.keep("totals", Additive(sums={"drift": ()}, counts={"known": ()}))

    def known(self, values: torch.Tensor) -> torch.Tensor:
        return values[values.isfinite()]

    def add(self, batch: TokenBatch) -> None:
        norms, drift = self.known(batch.norms), self.known(batch.drift)
        self.largest.add(norms, torch.zeros(len(norms), dtype=torch.int64))
        self.totals.add("drift", drift.double().sum())
        self.totals.add("known", len(drift))

    def compute(self) -> list[Measurement]:
        known, largest = int(self.totals["known"]), self.largest.values
        return [
            MEAN.measure(float(largest[0]) if len(largest) else None),
            VARIANCE.measure(float(self.totals["drift"]) / known if known else None),
        ]

    def oracle(self, batch: TokenBatch) -> Mapping[str, float | None]:
        norms, drift = (column[column.isfinite()].double() for column in (batch.norms, batch.drift))
        return {
            MEAN.name: float(norms.max()) if len(norms) else None,
            VARIANCE.name: float(drift.mean()) if len(drift) else None,
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Statistic[TokenBatch], Sequence[TokenBatch]]]:
        yield cls(), example_tokens(seed)


class TakesUnknownForZero(Longest, register=False):
    def known(self, values: torch.Tensor) -> torch.Tensor:
        return values.nan_to_num(0.0, posinf=0.0)


class CountsTheFirstBatchOnly(Longest, register=False):
    def merge(self, other: Statistic[TokenBatch]) -> None:
        if not len(self.largest.values):
            super().merge(other)


class LastLoss(BatchStatistic[TrainingStep], register=False):
    """The loss of the last step, written plainly."""

    name = "last_loss"
    consumes = "steps"
    metrics = (MEAN,)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self.last = self.keep("last", Latest())

    def at(self, batch: TrainingStep) -> int:
        return batch.step

    def add(self, batch: TrainingStep) -> None:
        if math.isfinite(batch.scalars["loss"]):
            self.last.note(self.at(batch), batch.scalars["loss"])

    def compute(self) -> list[Measurement]:
        return [MEAN.measure(self.last.number)]

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        steps = [batch] if isinstance(batch, TrainingStep) else batch
        finite = {step.step: step.scalars["loss"] for step in steps if math.isfinite(step.scalars["loss"])}
        return {MEAN.name: finite[max(finite)] if finite else None}

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Statistic[TrainingStep], Sequence[TrainingStep]]]:
        losses = torch.rand(9, generator=torch.Generator().manual_seed(seed)).tolist()
        yield cls(), [TrainingStep(step, {"loss": loss}) for step, loss in enumerate(losses)]


class TakesTheLastThatCame(LastLoss, register=False):
    """The order of arrival stands for the step."""

    def at(self, batch: TrainingStep) -> int:
        self.came = getattr(self, "came", 0) + 1
        return self.came


class TakesNanForALoss(LastLoss, register=False):
    def add(self, batch: TrainingStep) -> None:
        loss = batch.scalars["loss"]
        self.last.note(batch.step, loss if math.isfinite(loss) else 0.0)


@pytest.mark.parametrize("law", STATISTIC_LAWS)
@pytest.mark.parametrize("sound", [Longest, LastLoss])
def test_sound_statistics_of_other_kinds_pass(sound: type[Statistic[Any]], law: str) -> None:
    obey(law, sound)


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (TakesUnknownForZero, "oracle"),
        (TakesUnknownForZero, "defects"),
        (CountsTheFirstBatchOnly, "merge"),
        (TakesTheLastThatCame, "split"),
        (TakesNanForALoss, "defects"),
    ],
)
def test_a_planted_fault_of_other_kinds_is_caught(broken: type[Statistic[Any]], law: str) -> None:
    with pytest.raises(LawViolation):
        obey(law, broken, examples=60)


def test_a_statistic_without_examples_is_not_skipped() -> None:
    class Silent(Sound, register=False):
        @classmethod
        def examples(cls, seed: int) -> Iterable[tuple[Statistic[VectorBatch], Sequence[VectorBatch]]]:
            return []

    with pytest.raises(LawViolation, match="at least one instance"):
        obey("oracle", Silent)
