"""Learning rates over time: pure functions of the step, so that resuming needs no state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .errors import ModelError

__all__ = ["SCHEDULES", "Schedule", "scale_rate"]

SCHEDULES = ("inverse_sqrt", "cosine", "restarts", "constant")
RULES = ("linear", "sqrt")


@dataclass(frozen=True)
class Schedule:
    """The factor on the peak learning rate at each step, after a linear warm-up.

    **Warm-up.** For `t < w`, the factor is `(t + 1) / w`. Adam's second moment v̂ is made of a handful of gradients at
    first, so that its steps are wild just when the layers have not found each other yet; small steps bridge that time,
    and post-LayerNorm Transformers diverge without them.

    After it, with `u = t - w` steps since and `n = steps - w` in all:

    - `inverse_sqrt`: `√(w / (t + 1))`, the schedule of the first Transformer, whose peak is `D^-½ w^-½`: it needs no
      end, and falls ever more slowly. A warm-up of 0 counts as 1.
    - `cosine`: `floor + (1 - floor) (1 + cos(π u/n)) / 2`: long near the peak, long near the floor, where it stays.
    - `restarts`: the same cosine within periods of `p, pg, pg², …` steps; each begins at the peak again. The jump
      shakes the model out of a sharp minimum, and each end of a period is a good moment to stop.
    - `constant`: 1.

    References:
        Warm-up and inverse square root: Vaswani et al. 2017, equation 3, https://arxiv.org/abs/1706.03762; why it is
        needed: Xiong et al. 2020, https://arxiv.org/abs/2002.04745. Cosine and restarts: Loshchilov and Hutter 2017,
        "SGDR", equation 5, https://arxiv.org/abs/1608.03983

    Args:
        kind: one of `SCHEDULES`.
        steps: the length of the training.
        warmup: w.
        floor: the lowest factor of the cosines.
        period: p, the first period of `restarts`.
        growth: g, by which each period is longer than the last.

    Raises:
        ModelError: if a value does not fit.

    Example:
        >>> schedule = Schedule("cosine", steps=12, warmup=2)
        >>> [round(schedule(step), 3) for step in (0, 1, 2, 7, 12)]
        [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    kind: str = "cosine"
    steps: int = 1000
    warmup: int = 0
    floor: float = 0.0
    period: int = 0
    growth: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise ModelError(f"`kind` must be one of {', '.join(SCHEDULES)}, got {self.kind!r}; cosine suits most")
        if self.steps < 1:
            raise ModelError(f"`steps` must be at least 1, got {self.steps}; count from one")
        if self.warmup < 0:
            raise ModelError(f"`warmup` must be 0 or more, got {self.warmup}; a few percent of the steps is usual")
        if not 0 <= self.floor <= 1:
            raise ModelError(f"`floor` must be between 0 and 1, got {self.floor}; it is a share of the peak")
        if self.kind == "restarts" and self.period < 1:
            raise ModelError(
                f"`period` must be at least 1 for restarts, got {self.period}; a quarter of the steps will do"
            )
        if self.growth < 1:
            raise ModelError(f"`growth` must be at least 1, got {self.growth}; 2 doubles each period")

    def __call__(self, step: int) -> float:
        """Return the factor for a step, counted from 0."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "inverse_sqrt":
            return math.sqrt(max(self.warmup, 1) / (step + 1))
        if self.kind == "cosine":
            return self._cosine(min(1.0, (step - self.warmup) / max(self.steps - self.warmup, 1)))
        if self.kind == "restarts":
            return self._cosine(self._within(step - self.warmup))
        return 1.0

    def _cosine(self, share: float) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2

    def _within(self, since: int) -> float:
        """Return the share of the current period that is over."""
        if self.growth == 1:
            return since % self.period / self.period
        # Periods end at p (gⁱ - 1) / (g - 1); the current one is the largest i that begins no later than now.
        index = int(math.log(since / self.period * (self.growth - 1) + 1, self.growth) + 1e-9)
        begin = self.period * (self.growth**index - 1) / (self.growth - 1)
        return (since - begin) / (self.period * self.growth**index)

    def to_json(self) -> dict[str, Any]:
        """Return all settings, from which `Schedule(**settings)` makes the same one."""
        return dict(vars(self))


def scale_rate(rate: float, *, batch: int, base: int, rule: str) -> float:
    """Return the learning rate for another batch size than the one it was found with.

    The gradient of a batch of n has variance σ²/n. With `linear`, `η · n/n₀`, one step of a large batch goes as far as
    the n/n₀ steps that it replaces: right for SGD while its noise is small beside the curvature. With `sqrt`,
    `η · √(n/n₀)`, the random part of the step keeps its size: right for Adam, whose steps are divided by √v̂ and hence
    do not shrink with the noise of the gradient.

    References:
        Linear: Goyal et al. 2017, "Accurate, large minibatch SGD", https://arxiv.org/abs/1706.02677. Square root:
        Krizhevsky 2014, https://arxiv.org/abs/1404.5997; for Adam: Malladi et al. 2022, "On the SDEs and scaling rules
        for adaptive gradient algorithms", https://arxiv.org/abs/2205.10287

    Args:
        rate: η.
        batch: n, the size that is used.
        base: n₀, the size that the rate belongs to.
        rule: `linear` or `sqrt`.

    Raises:
        ModelError: if the rule is unknown or a size is below one.

    Example:
        >>> scale_rate(0.5, batch=64, base=16, rule="linear"), scale_rate(0.5, batch=64, base=16, rule="sqrt")
        (2.0, 1.0)
    """
    if rule not in RULES:
        raise ModelError(f"`rule` must be {' or '.join(RULES)}, got {rule!r}; sqrt suits Adam")
    if batch < 1 or base < 1:
        raise ModelError(f"`batch` and `base` must be at least 1, got {batch} and {base}; count sequences")
    return rate * (batch / base if rule == "linear" else math.sqrt(batch / base))
