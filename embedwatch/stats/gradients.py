"""Gradients of training steps: how far they are clipped, which steps are skipped, what reaches the embedding table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from embedwatch.batch import TrainingStep
from embedwatch.core.measurement import Measurement, Metric
from embedwatch.sketches import Additive, BatchStatistic, Latest, Means

ROUNDING = 1e-3
"""A norm that is shorter by less was not clipped: clipping in half precision rounds."""

APPLIED = Metric("gradient_norm_applied_mean", "Mean norm of the gradient of the steps, as the optimizer takes it.")
LIMIT = Metric("gradient_norm_limit", "Last norm to which gradients are clipped.", headline=False)
CLIPPED = Metric(
    "clipped_steps_ratio", "Steps whose gradient was clipped, of those of which that is known.", healthy="below 0.95"
)
EXCESS = Metric(
    "gradient_excess_ratio",
    "Geometric mean of the norm of the gradient over what clipping leaves of it at most.",
    healthy="below 10",
)
TABLE = Metric("table_gradient_norm_mean", "Mean norm of the embedding table's gradient, as the optimizer takes it.")
SKIPPED = Metric(
    "skipped_steps_total",
    "Steps that changed nothing, since their gradient was not finite.",
    "steps",
    "counter",
    healthy="a few at the start in float16, else 0",
    digits=9,
)

MEANS = {"applied": APPLIED, "clipped": CLIPPED, "table": TABLE}


class Gradients(BatchStatistic[TrainingStep]):
    """Gradients of training steps: their norm after clipping, how often and how far they are clipped, skipped steps.

    A step is clipped where `gradient_norm` exceeds `gradient_norm_limit`, or where `gradient_norm_applied`, what is
    left of it, is shorter. The excess is `exp(mean of ln(norm / limit))`, below 1 where the limit is never reached; the
    limit is what is left, where only that is known. What is missing follows from what is given.

    Shape: batches of one step.
    Range: norms 0 and above; the share 0 to 1.
    State: sums and counts, the last limit; merge exact to rounding.
    NaN, Inf, empty: left out; `None` without a value.
    References: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks"; Micikevicius et al.
    2018, "Mixed precision training" (steps that are skipped).

    Example:
        >>> statistic = Gradients()
        >>> for step, norm in enumerate((0.5, 4.0, 1.0, math.inf)):
        ...     scalars = {"gradient_norm": norm, "gradient_norm_limit": 1.0, "skipped": float(norm == math.inf)}
        ...     statistic.update(TrainingStep(step, scalars))
        >>> found = {m.name: m.value for m in statistic.compute()}
        >>> round(found["clipped_steps_ratio"], 3), round(found["gradient_norm_applied_mean"], 3)
        (0.333, 0.833)
        >>> found["skipped_steps_total"]
        1
    """

    name = "gradients"
    title = "gradients and clipping"
    consumes = "steps"
    scalars = ("gradient_norm", "gradient_norm_limit", "gradient_norm_applied", "table_gradient_norm", "skipped")
    metrics = (APPLIED, LIMIT, CLIPPED, EXCESS, TABLE, SKIPPED)
    counts_defects = True

    def __init__(self) -> None:
        super().__init__()
        self._means = self.keep("means", Means([*MEANS, "excess"]))
        self._limit = self.keep("limit", Latest())
        self._counts = self.keep("counts", Additive(counts={"skipped": ()}))

    def add(self, batch: TrainingStep) -> None:
        """Add a step."""
        for name, value in _known(batch).items():
            self._means.note(name, value)
        limit = batch.scalars.get("gradient_norm_limit", math.nan)
        if math.isfinite(limit):
            self._limit.note(batch.step, float(limit))
        self._counts.add("skipped", int(_is_skipped(batch)))

    def compute(self) -> list[Measurement]:
        """Return the measurements of everything seen so far."""
        excess = self._means.mean("excess")
        return [
            *(metric.measure(self._means.mean(name)) for name, metric in MEANS.items()),
            LIMIT.measure(self._limit.number),
            EXCESS.measure(None if excess is None else math.exp(excess)),
            SKIPPED.measure(int(self._counts["skipped"])),
        ]

    def oracle(self, batch: TrainingStep | Sequence[TrainingStep]) -> Mapping[str, float | None]:
        """Return its measurements by the plain formula on all steps at once."""
        steps = [batch] if isinstance(batch, TrainingStep) else list(batch)
        known = [_known(step) for step in steps]
        means = {name: [each[name] for each in known if name in each] for name in (*MEANS, "excess")}
        found = {name: math.fsum(values) / len(values) if values else None for name, values in means.items()}
        limits = [(step.step, step.scalars.get("gradient_norm_limit", math.nan)) for step in steps]
        limits = [(step, limit) for step, limit in limits if math.isfinite(limit)]
        last = [limit for step, limit in limits if step == max(limits)[0]]
        excess = found["excess"]
        return {
            **{metric.name: found[name] for name, metric in MEANS.items()},
            LIMIT.name: math.fsum(last) / len(last) if last else None,
            EXCESS.name: None if excess is None else math.exp(excess),
            SKIPPED.name: sum(map(_is_skipped, steps)),
        }

    @classmethod
    def examples(cls, seed: int) -> Iterable[tuple[Gradients, Sequence[TrainingStep]]]:
        """Yield steps with a limit, steps of which both norms are known, steps that say nothing of gradients."""
        draws = torch.rand(24, generator=torch.Generator().manual_seed(seed)).tolist()
        limited = [
            TrainingStep(step, {"gradient_norm": 2 * x, "gradient_norm_limit": 1.0, "skipped": float(x > 0.8)})
            for step, x in enumerate(draws)
        ]
        limited[3].scalars["gradient_norm"] = math.inf
        yield cls(), limited
        yield (
            cls(),
            [
                TrainingStep(
                    step // 2,
                    {"gradient_norm": 3 * x, "gradient_norm_applied": min(3 * x, 2.0), "table_gradient_norm": x},
                )
                for step, x in enumerate(draws)
            ],
        )
        yield cls(), [TrainingStep(step, {"loss": x}) for step, x in enumerate(draws[:5])]


def _known(step: TrainingStep) -> dict[str, float]:
    """Return what is known of a step's gradient, by the name of the mean that it goes into."""
    finite = {name: float(value) for name, value in step.scalars.items() if math.isfinite(value)}
    norm, limit, applied = (finite.get(f"gradient_norm{end}") for end in ("", "_limit", "_applied"))
    found = {"table": finite["table_gradient_norm"]} if "table_gradient_norm" in finite else {}
    if applied is None and norm is not None and limit is not None:
        applied = min(norm, limit)
    if applied is not None:
        found["applied"] = applied
    if norm is not None and (limit is not None or applied is not None):
        bound = limit if limit is not None else applied or 0.0
        found["clipped"] = float(norm > bound * (1 + ROUNDING))
        if norm > 0 and bound > 0:
            found["excess"] = math.log(norm / bound)
    return found


def _is_skipped(step: TrainingStep) -> bool:
    skipped = step.scalars.get("skipped", 0.0)
    return math.isfinite(skipped) and skipped > 0
