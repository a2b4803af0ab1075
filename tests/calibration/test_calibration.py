"""E-values, their accumulation, the budget, and what windows share."""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean

import pytest

from embedwatch import History, Metric, Provenance, Snapshot, Space, UsageError
from embedwatch.calibration import (
    FINEST,
    Budget,
    accumulate,
    e_value,
    evaluations_per_day,
    lucky_references,
    plan,
    windows_together,
)

P_VALUE = Metric("drift_p_value", "A number.")
NORMAL = NormalDist()


def test_the_mean_of_an_e_value_over_uniform_p_values_is_at_most_one() -> None:
    steps = 100_000
    mean = fmean(e_value((step + 0.5) / steps) for step in range(steps))
    assert 0.8 < mean <= 1
    assert fmean(e_value(max(round(step / 100), 1) / 10_000) for step in range(1, 1_000_001, 97)) <= 1


def test_a_smaller_p_value_is_more_evidence() -> None:
    values = [e_value(step / 1_000) for step in range(2, 1_001)]
    assert values == sorted(values, reverse=True)
    assert e_value(0) == e_value(FINEST) == e_value(FINEST / 2)
    assert e_value(1 - 2e-3) == pytest.approx(0.5, abs=1e-3)
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="`p_value` must be from 0 to 1"):
            e_value(wrong)


def test_evidence_is_the_sum_over_all_places_where_a_change_may_have_begun() -> None:
    p_values = [0.3, 0.02, 0.6, 0.004]
    evidence = [e_value(each) for each in p_values]
    plain = sum(math.prod(evidence[start:]) for start in range(len(evidence)))
    assert accumulate(p_values, 1e9).evidence == pytest.approx(plain)
    assert accumulate([], 10).evidence == 0


def test_evidence_tells_since_when_and_is_forgotten_after_a_repair() -> None:
    found = accumulate([0.5] * 5 + [0.002] * 6, threshold=1_000)
    assert (found.evidence, found.windows) == (4_000, 6)
    recovered = [accumulate([0.002] * 40 + [0.6] * calm, 1_000) for calm in range(10)]
    assert recovered[1].evidence >= 1_000
    assert [each.evidence for each in recovered].index(0) <= 4
    assert accumulate([0.002] * 40 + [0.6] * 9 + [0.02], 1_000).evidence < 10


def runs(threshold: float, windows: int, seed: int, *, ratio: float = 0.0, length: int = 12_000) -> float:
    """Return how many evaluations there are to a false alarm in a healthy stream with a new reference every 200."""
    numbers, alarms, alarmed = random.Random(seed), 0, False
    p_values: list[float] = []
    for step in range(length):
        if step % 200 == 0:
            luck, p_values = numbers.gauss(0, 1), []
        strange = math.sqrt(ratio) * luck + math.sqrt(1 - ratio) * numbers.gauss(0, 1)
        p_values = [*p_values[-windows + 1 :], 2 * NORMAL.cdf(-abs(strange))]
        now = accumulate(p_values, threshold).evidence >= threshold
        alarms, alarmed = alarms + (now and not alarmed), now
    return length / max(1, alarms)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1 / 3])
def test_healthy_streams_keep_to_the_budget_whatever_the_luck_of_their_references(ratio: float) -> None:
    found = plan(ratio, 100)
    assert found is not None
    assert runs(found.threshold, found.windows, seed=1, ratio=ratio) >= 100


def test_without_a_plan_a_short_reference_breaks_the_budget() -> None:
    found = plan(1 / 3, 1_000)
    assert found is not None
    assert runs(1_000, 30, seed=1, ratio=1 / 3) < 1_000 < runs(found.threshold, found.windows, seed=1, ratio=1 / 3)


def test_the_shorter_the_reference_the_less_is_accumulated() -> None:
    plans = [plan(ratio, 43_200) for ratio in (0, 0.05, 0.1, 0.2)]
    windows = [each.windows for each in plans if each is not None]
    assert windows == sorted(windows, reverse=True)
    assert all(each is not None and 43_200 <= each.threshold < 4 * 43_200 for each in plans)
    assert plan(0.95, 43_200) is None
    for wrong in (-0.1, 1.0):
        with pytest.raises(UsageError, match="`ratio` must be from 0 to below 1"):
            plan(wrong, 100)


@pytest.mark.parametrize(
    ("ratio", "evaluations"),
    [(0.0, 43_200), (0.1, 43_200), (0.3, 1_000), (0.5, 30), (2 / 3, 43_200), (0.5, 2_592_000)],
)
def test_what_is_planned_can_be_reached(ratio: float, evaluations: float) -> None:
    found = plan(ratio, evaluations)
    assert found is not None
    assert accumulate([2e-4] * found.windows, found.threshold).evidence >= found.threshold


@pytest.mark.parametrize(("ratio", "windows"), [(0.05, 3), (0.2, 3), (1 / 3, 3), (0.5, 4), (2 / 3, 4)])
def test_a_blatant_change_is_told_after_a_few_windows(ratio: float, windows: int) -> None:
    found = plan(ratio, 43_200)
    assert found is not None
    blatant = [accumulate([2e-4] * count, found.threshold).evidence >= found.threshold for count in range(1, 10)]
    assert blatant.index(True) + 1 == windows


def test_a_share_of_references_is_unlucky_and_falls_with_the_share_of_a_window() -> None:
    shares = [lucky_references(ratio) for ratio in (1 / 3, 0.2, 0.1)]
    assert shares == sorted(shares, reverse=True)
    assert 0.03 < shares[0] < 0.08
    assert shares[2] < 0.003


def test_a_budget_is_read_from_words() -> None:
    assert Budget.parse("1 per 30d").evaluations(per_day=1_440) == 43_200
    assert Budget.parse("2 per 4w").evaluations(per_day=24, spaces=10) == 10 * 24 * 28 / 2
    assert Budget.parse("0.5 per 12h") == Budget(0.5, 0.5)
    assert str(Budget.parse("1 per 90m")) == "1 per 0.0625d"
    for wrong in ("", "1 per month", "one per 30d", "0 per 30d", "1 per 0d", "1/30d", "-1 per 3d", None):
        with pytest.raises(UsageError, match="`budget` must be a number of false alarms"):
            Budget.parse(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^`alarms` must be .* in m, h, d or w, got 'often'; write 1 per 30d$"):
        Budget.parse("often", name="alarms")
    with pytest.raises(UsageError, match="`spaces` must be 1 or more"):
        Budget(1, 30).evaluations(1, spaces=0)
    with pytest.raises(UsageError, match="`per_day` must be above 0"):
        Budget(1, 30).evaluations(0)


def test_the_rate_is_measured_from_times() -> None:
    assert evaluations_per_day([100, 160, 220, 280]) == 1_440
    assert evaluations_per_day([0, 86_400]) == 1
    assert evaluations_per_day([]) == evaluations_per_day([7, 7]) == 1_440


def snap(time: float, p: float | None, *, step: int | None = None, model: str = "a", reference: str = "r") -> Snapshot:
    provenance = Provenance(time=time, rows=10, step=step, fingerprint=model, reference=reference)
    return Snapshot(Space("m", "p"), (P_VALUE.measure(p),), provenance)


def times(now: Snapshot, history: History | None) -> list[float]:
    return [each.provenance.time for each in windows_together(now, history, "drift_p_value")]


def test_windows_of_one_model_and_one_reference_speak_together() -> None:
    past = [snap(1, 0.5), snap(2, None), snap(3, 0.4)]
    assert times(snap(4, 0.3), History(past)) == [1, 3, 4]
    assert times(snap(4, 0.3), None) == [4]
    assert times(snap(4, 0.3, model="b"), History(past)) == [4]
    assert times(snap(5, 0.3), History([*past, snap(4, 0.2, reference="other")])) == [5]


def test_what_a_resumed_run_went_over_again_counts_once() -> None:
    past = [snap(1, 0.5, step=10), snap(2, 0.5, step=20), snap(3, 0.5, step=30), snap(4, 0.5, step=20)]
    assert times(snap(5, 0.5, step=30), History(past)) == [1, 4, 5]


def test_a_snapshot_that_is_in_the_history_counts_once() -> None:
    now = snap(2, 0.5)
    assert times(now, History([snap(1, 0.5), now])) == [1, 2]


def test_an_even_history_has_the_newest_without_gaps() -> None:
    history = History((snap(float(time), 0.5) for time in range(1_000)), capacity=20, keep="even")
    assert times(snap(1_000, 0.5), history) == [float(time) for time in range(950, 1_001)]
