"""Growth of the longest row: found in time where it is real, silent where it is not, on courses that are simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from embedwatch.checks.token_norm_growth import LONGEST, TokenNormGrowth
from embedwatch.core import Evidence, History, Metric, Provenance, Snapshot, Space
from embedwatch.core.verdict import Status

RATIO = Metric("token_norm_extreme_ratio", "Longest row over median.")
DECAY = Metric("token_table_weight_decay", "Weight decay.")
WINDOWS, EVERY, COURSES = 40, 10, 40
CHECK = TokenNormGrowth()

Course = list[float]


def snap(step: int | None, ratio: float | None, *, decay: float | None = None) -> Snapshot:
    measurements = (RATIO.measure(ratio), *([] if decay is None else [DECAY.measure(decay)]))
    return Snapshot(Space("m", "table"), measurements, Provenance(time=0.0, rows=100, step=step, role="tokens"))


def status(evidence: Evidence) -> Status:
    if evidence.value is None:
        return "unknown"
    return "ok" if evidence.limit is None else evidence.limit.status(evidence.value)


def play(course: Course, *, decay: float | None = None) -> list[tuple[Status, Evidence]]:
    """Judge window after window, as a training goes on."""
    history, told = History(), []
    for window, ratio in enumerate(course):
        snapshot = snap((window + 1) * EVERY, ratio, decay=decay)
        history.append(snapshot)
        evidence = CHECK.evaluate(snapshot, None, history)
        told.append((status(evidence), evidence))
    return told


def noise(generator: random.Random) -> Callable[[], float]:
    spread = generator.choice((0.005, 0.02, 0.05))
    return lambda: math.exp(generator.gauss(0, spread))


def scaled(shape: Callable[[float], float], generator: random.Random, top: float) -> Course:
    """Return a course from 1.3 to `top`, along a shape from 0 to 1 over the run."""
    wobble = noise(generator)
    return [(1.3 + (top - 1.3) * shape(window / WINDOWS)) * wobble() for window in range(WINDOWS)]


def walk(generator: random.Random) -> Course:
    spread, total, course = generator.choice((0.01, 0.03)), math.log(generator.uniform(1.2, 4)), []
    for _ in range(WINDOWS):
        total = max(total + generator.gauss(0, spread), 0.05)
        course.append(math.exp(total))
    return course


def saturating(generator: random.Random) -> Course:
    pace = generator.uniform(0.05, 2)
    return scaled(lambda x: 1 - math.exp(-x / pace), generator, generator.uniform(2, 7))


HEALTHY: dict[str, Callable[[random.Random], Course]] = {
    "flat": lambda g: scaled(lambda _: 1.0, g, g.uniform(1.2, 6)),
    "random walk": walk,
    "saturating": saturating,
    "square root": lambda g: scaled(math.sqrt, g, g.uniform(2, 6)),
    "logarithm": lambda g: scaled(lambda x: math.log1p(40 * x) / math.log1p(40), g, g.uniform(2, 6)),
    "slow": lambda g: scaled(lambda x: x, g, g.uniform(2, 5)),
}
GROWING: dict[str, Callable[[random.Random], Course]] = {
    "linear": lambda g: scaled(lambda x: x, g, g.uniform(11, 22)),
    "exponential": lambda g: [1.3 * (g_top / 1.3) ** (w / WINDOWS) for g_top in [g.uniform(12, 80)] for w in range(40)],
    "late": lambda g: scaled(lambda x: max(0.0, (x - 0.4) / 0.6), g, g.uniform(11, 14)),
    "faster and faster": lambda g: scaled(lambda x: x**1.5, g, g.uniform(11, 22)),
}


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_courses_do_not_warn(kind: str) -> None:
    generator = random.Random(0)
    alarms = sum(any(said in ("warn", "fail") for said, _ in play(HEALTHY[kind](generator))) for _ in range(COURSES))
    assert alarms <= 0.1 * COURSES


@pytest.mark.parametrize("kind", GROWING)
def test_growth_is_told_long_before_the_crossing(kind: str) -> None:
    generator, leads = random.Random(0), []
    for _ in range(COURSES):
        course = GROWING[kind](generator)
        crossing = next(window for window, ratio in enumerate(course) if ratio >= LONGEST)
        told = [said for said, _ in play(course)]
        assert told[crossing] == "fail"
        leads.append(1 - told.index("warn") / crossing if "warn" in told[:crossing] else 0.0)
    assert sorted(leads)[COURSES // 10] > 0.2


def test_the_reason_says_pace_step_interval_and_decay() -> None:
    told = play([1 + 0.2 * window for window in range(30)], decay=0.0)
    assert told[-1][0] == "warn"
    assert told[-1][1].reason == (
        "The largest token norm grows 29 % per 100 steps against the median; it reaches 10 × the median at step ~460 "
        "(90 %: 460-460); weight decay is 0 for this table."
    )
    assert told[-1][1].exhibits == ("largest_tokens",)
    assert "weight decay" not in play([1 + 0.2 * window for window in range(30)])[-1][1].reason


def test_beyond_the_limit_it_fails_without_any_past() -> None:
    evidence = CHECK.evaluate(snap(1, 12.0))
    assert (status(evidence), evidence.value) == ("fail", 0.0)


@pytest.mark.parametrize("windows", [1, 4])
def test_few_windows_are_unknown(windows: int) -> None:
    said, evidence = play([2.0] * windows)[-1]
    assert said == "unknown"
    assert "needs 5" in evidence.reason


def test_windows_without_steps_are_no_course() -> None:
    history = History([snap(None, 2.0)] * 20)
    assert CHECK.evaluate(snap(None, 2.0), None, history).value is None


def test_an_unsteady_course_near_the_limit_is_unknown() -> None:
    course = [4.0, 4.0, 3.9, 4.1, 4.0, 4.0, 3.2, 7.9, 4.0, 9.1, 6.2]
    said, evidence = play(course)[-1]
    assert said == "unknown"
    assert "too unsteady for a forecast" in evidence.reason


def test_growth_that_slows_down_is_ok_and_says_so() -> None:
    course = [1.3 + 8.3 * (1 - math.exp(-window / 12)) for window in range(40)]
    told = play(course)
    assert {said for said, _ in told[4:]} == {"ok"}
    assert any("slows down" in evidence.reason for _, evidence in told)


def test_what_a_resumed_run_goes_over_again_counts_as_it_was_last() -> None:
    growing = [snap(step, 1 + step / 50) for step in range(10, 410, 10)]
    again = [snap(step, 2.0) for step in range(60, 400, 10)]
    evidence = CHECK.evaluate(again[-1], None, History([*growing, *again]))
    assert status(evidence) == "ok"
    assert "2 × the median" in evidence.reason


def test_a_long_history_is_thinned() -> None:
    past = [snap(step, 1 + 8.5 * step / 5_000) for step in range(1, 5_001)]
    assert status(CHECK.evaluate(past[-1], None, History(past, capacity=5_000))) == "warn"
