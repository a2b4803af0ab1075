"""What windows share: the reference's own sampling error, and how many of them may speak together in spite of it.

Each of the windows W_1, W_2, ... of n rows is compared with one reference R of m rows, in `T_t = (W_t - R) / σ`. Under
permutation each p-value holds by itself, but they have R in common: T_s and T_t correlate by

    ρ = Var R / (Var W + Var R) = (1/m) / (1/n + 1/m) = n / (n + m).

So `T_t = √ρ Z + √(1 - ρ) N_t` with one normal Z for the life of a reference. Where Z is far out, every window looks a
little strange, the e-values have a mean `m(Z) = E[e | Z]` above 1, and their product grows without any change.
Rows in a stream count as blocks that are independent, for n and m alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from embedwatch.calibration.evalues import e_value
from embedwatch.core.errors import UsageError

__all__ = ["MOST_WINDOWS", "Plan", "lucky_references", "plan"]

MOST_WINDOWS = 50
"""Windows that are accumulated at most: what does not show in so many is for a longer window."""
MOST_RAISED = 3.0
"""A threshold is raised so many times at most for the sake of more windows."""
REACHED = ((4e-4, 1_000.0), (2e-4, math.inf))
"""The smallest p-values that 9,999 permutations give a family which has a quarter of the level, and half of it: the
first should be able to reach a threshold that is raised so many times at most, or else the second."""
STEPS, GRID = 100, 20
"""Shares ρ are rounded up to hundredths, and evaluations to twentieths of a power of ten."""
ROUNDING = 1e-9
FARTHEST, PACE = 8.0, 0.1
"""Z is looked at up to 8 standard deviations, in steps of 0.1; beyond lies 1e-15."""
HALVINGS = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How evidence is accumulated beside one reference.

    Args:
        windows: w, how many of the newest windows are accumulated.
        threshold: A, what their evidence must reach.
    """

    windows: int
    threshold: float


def plan(ratio: float, evaluations: float) -> Plan | None:
    """Return how many windows to accumulate and up to which threshold; `None` where no evidence would ever reach it.

    Given Z, dividing each e-value by m(Z) makes it one again, so the evidence of w windows is at most `m(Z)^w` times
    that of a detector that holds its run length. Of all evaluations at most the share

        E_Z[min(1, max(1, m(Z))^w / A)]

    begins a false alarm, whatever the luck of the reference. A is the smallest threshold at which that is one in
    `evaluations`. w is the largest number, up to 50, for which A stays below three times `evaluations`; or, where that
    is larger, the smallest with which one family of differences alone can reach A: any, or where that raises A more
    than a thousand times, the one with the largest share of the level.

    References:
        The bound on run lengths: Shin, Ramdas & Rinaldo 2024 (https://arxiv.org/abs/2203.03532). That p-values which
        share what calibrates them hold on average and not for each reference: Bates, Candès, Lei, Romano & Sesia 2023,
        "Testing for outliers with conformal p-values" (https://arxiv.org/abs/2104.08279).

    Args:
        ratio: ρ, rows of a window over those of window and reference.
        evaluations: in how many evaluations one false alarm is accepted.

    Example:
        >>> [plan(ratio, 43_200).windows for ratio in (0, 0.05, 0.1, 0.2)], plan(0.95, 43_200)
        ([50, 18, 9, 5], None)
        >>> round(plan(0.2, 43_200).threshold, -3)
        120000.0
    """
    if not 0 <= ratio < 1:
        raise UsageError(f"`ratio` must be from 0 to below 1, got {ratio!r}; divide the window by window and reference")
    return _plan(
        min(STEPS - 1, math.ceil(ratio * STEPS - ROUNDING)),
        max(0, math.ceil(GRID * math.log10(evaluations) - ROUNDING)),
    )


@lru_cache(maxsize=1_024)
def _plan(step: int, place: int) -> Plan | None:
    """Return the plan for a share in hundredths, and a number of evaluations on a logarithmic grid."""
    evaluations = 10 ** (place / GRID)
    raised = [_raised(step, windows, evaluations) for windows in range(1, MOST_WINDOWS + 1)]
    plans = [Plan(windows, evaluations * math.exp(more)) for windows, more in enumerate(raised, 1)]
    usual = plans[sum(more <= math.log(MOST_RAISED) for more in raised) - 1]
    for finest, most in REACHED:
        for each in plans:
            if each.windows < usual.windows or each.threshold > most * evaluations:
                continue
            if _utmost(e_value(finest), each.windows) >= each.threshold:
                return each
    return None


def _utmost(evidence: float, windows: int) -> float:
    """Return the evidence of so many windows in a row with one e-value."""
    return math.fsum(evidence**power for power in range(1, windows + 1))


def _raised(step: int, windows: int, evaluations: float) -> float:
    """Return the logarithm of how many times the threshold must be raised for w windows."""
    means = [windows * math.log(max(1.0, mean)) for mean in _means(step)]
    low, high = 0.0, 1.0
    while _begun(means, math.log(evaluations) + high) > 1 / evaluations:
        low, high = high, 2 * high
    if _begun(means, math.log(evaluations)) <= 1 / evaluations:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _begun(means, math.log(evaluations) + middle) > 1 / evaluations:
            low = middle
        else:
            high = middle
    return high


def _begun(means: list[float], threshold: float) -> float:
    """Return the share of evaluations at which a false alarm begins, over all references."""
    return math.fsum(
        weight * math.exp(min(0.0, mean - threshold)) for weight, mean in zip(_weights(), means, strict=True)
    )


@lru_cache(maxsize=1)
def _weights() -> list[float]:
    """Return the probability of each step of |Z|."""
    edges = [0.0, *((place + 0.5) * PACE for place in range(round(FARTHEST / PACE)))]
    beyond = [math.erfc(edge / math.sqrt(2)) for edge in edges]
    return [first - second for first, second in zip(beyond, [*beyond[1:], 0.0], strict=True)]


@lru_cache(maxsize=STEPS)
def _means(step: int) -> list[float]:
    """Return m(Z), the mean e-value beside a reference whose error is Z, for each step of Z."""
    return [mean for mean, _ in _given(step / STEPS)]


def _given(ratio: float) -> list[tuple[float, float]]:
    """Return the mean e-value and the mean logarithm of it for each step of Z."""
    noise = [PACE * place for place in range(-round(FARTHEST / PACE), round(FARTHEST / PACE) + 1)]
    density = [math.exp(-each * each / 2) for each in noise]
    weight = math.fsum(density)
    fixed, free = math.sqrt(ratio), math.sqrt(1 - ratio)
    found = []
    for place in range(len(_weights())):
        at = fixed * place * PACE
        evidence = [e_value(math.erfc(abs(at + free * each) / math.sqrt(2))) for each in noise]
        mean = math.fsum(share * each for share, each in zip(density, evidence, strict=True)) / weight
        log = math.fsum(share * math.log(each) for share, each in zip(density, evidence, strict=True)) / weight
        found.append((mean, log))
    return found


def lucky_references(ratio: float) -> float:
    """Return the share of references beside which unlimited evidence would grow for ever: P(E[ln e | Z] > 0).

    Example:
        >>> [float(f"{lucky_references(ratio):.1g}") for ratio in (1 / 3, 0.2, 0.1, 0.05)]
        [0.05, 0.02, 0.001, 9e-06]
    """
    return math.fsum(weight for weight, (_, log) in zip(_weights(), _given(ratio), strict=True) if log > 0)
