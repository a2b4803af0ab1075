"""A difference must be both sure and large enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from embedwatch import History, Judge, Metric, Provenance, Snapshot, Space, UsageError, Verdict
from embedwatch.checks.drift import SIZES, Drift

FOREIGN = {"drift_foreign_ratio": 0.05}
STILL = {size.metric: size.none for size in SIZES}


def judged(p_value: float | None, sizes: Mapping[str, float | None] = {}, *, level: float = 0.01) -> Verdict:
    numbers = {**STILL, "drift_p_value": p_value, "drift_rows": 400, "drift_rows_needed": 900, **sizes}
    measured = [Metric(name, "A number.").measure(value) for name, value in numbers.items()]
    family = Metric("drift_family_p_value", "A number.", labels=("family",))
    families = [family.measure(p_value, family="content"), family.measure(0.5, family="shift")]
    snapshot = Snapshot(Space("m", "p"), (*measured, *families), Provenance(time=0, rows=500))
    (verdict,) = Judge([Drift(level=level)]).judge(snapshot)
    return verdict


@pytest.mark.parametrize(
    ("sizes", "status"),
    [
        ({}, "ok"),
        ({"drift_foreign_ratio": 0.009}, "ok"),
        ({"drift_foreign_ratio": 0.01}, "warn"),
        ({"drift_foreign_ratio": 0.1}, "fail"),
        ({"drift_centroid_ratio": 0.05}, "warn"),
        ({"drift_centroid_ratio": 0.25}, "fail"),
        ({"drift_variance_ratio": 0.951}, "warn"),
        ({"drift_variance_ratio": 1.3}, "fail"),
        ({"drift_variance_ratio": 0.0}, "fail"),
        ({"drift_rank_ratio": 1 / 1.06}, "warn"),
        ({"drift_norm_ratio": 1.02}, "warn"),
        ({"drift_norm_ratio": 0.9}, "fail"),
        ({"drift_rank_ratio": None, "drift_foreign_ratio": 0.02}, "warn"),
    ],
)
def test_what_is_sure_is_judged_by_its_size(sizes: dict[str, float | None], status: str) -> None:
    assert judged(0.002, sizes).status == status
    assert judged(0.02, sizes).status == "ok"


def test_the_level_can_be_chosen() -> None:
    assert judged(0.02, FOREIGN, level=0.05).status == "warn"
    assert judged(0.002, FOREIGN, level=0.001).status == "ok"
    for wrong in (0, 1, -1):
        with pytest.raises(UsageError, match="`level` must be above 0"):
            Drift(level=wrong)


def test_the_reason_names_families_and_sizes_the_largest_first() -> None:
    verdict = judged(0.002, {**FOREIGN, "drift_norm_ratio": 1.2})
    assert verdict.reason == (
        "Rows differ (p = 0.002; content): norms are 1.2 times what they were; 5.0% of the rows or more are foreign."
    )
    assert (verdict.evidence.p_value, verdict.evidence.effect) == (0.002, 1.2)
    assert verdict.evidence.exhibits == ("foreign_rows", "crowded_rows", "cells_gained", "cells_lost")
    assert "by less than matters" in judged(0.002).reason


def test_too_few_rows_are_unknown_with_the_number_that_would_do() -> None:
    verdict = judged(None, {"drift_decay_length": 9.0})
    assert verdict.status == "unknown"
    assert verdict.reason == (
        "400 rows are too few, since 9 rows in a row are about one thing: each side needs 900, "
        "the reference twice as many."
    )
    alike = judged(None, {"drift_distinct_rows": 3, "drift_rows_needed": 100})
    assert alike.reason.startswith("Of 400 rows those that were sampled are 3 different ones, needs 10: ")
    assert judged(None, {"drift_rows_needed": None}).reason.startswith("None of 500 rows could be compared: ")


# --- Over time -------------------------------------------------------------------------------------------------------

MINUTE, DAY = 60.0, 86_400.0
BLOCKS = Metric("drift_blocks", "Blocks.", labels=("side",))


def window(
    number: int, p_value: float | None, *, every: float = MINUTE, ratio: float = 0.05, **sizes: float
) -> Snapshot:
    numbers = {**STILL, "drift_p_value": p_value, "drift_rows": 400, "drift_decay_length": 4.0, **sizes}
    measured = [Metric(name, "A number.").measure(value) for name, value in numbers.items()]
    blocks = [BLOCKS.measure(100 * ratio, side="window"), BLOCKS.measure(100 * (1 - ratio), side="reference")]
    return Snapshot(Space("m", "p"), (*measured, *blocks), Provenance(time=number * every, rows=400))


def course(windows: Sequence[Snapshot], check: Drift | None = None) -> list[Verdict]:
    history, found = History(), []
    for each in windows:
        found += Judge([check or Drift()]).judge(each, history=history)
        history.append(each)
    return found


def test_over_time_one_strange_window_is_no_alarm_and_several_are() -> None:
    verdicts = course([window(number, 0.002, drift_foreign_ratio=0.05) for number in range(10)])
    statuses = [verdict.status for verdict in verdicts]
    assert statuses[:4] == ["ok"] * 4
    assert statuses[5:] == ["warn"] * 5
    assert "2 windows more like it would be sure" in verdicts[2].reason or "3 windows more" in verdicts[2].reason
    evidence = verdicts[-1].evidence
    assert evidence.value == evidence.e_value
    assert evidence.limit is not None
    assert evidence.limit.warn is not None
    assert evidence.value is not None
    assert evidence.value >= evidence.limit.warn >= 43_200
    assert evidence.budget == "1 per 30d at 1,440 evaluations a day"
    assert evidence.effective_rows == 100
    assert (evidence.windows, evidence.level, evidence.p_value) == (10, None, 0.002)


def test_over_time_healthy_windows_are_ok_and_the_alarm_ends_with_the_change() -> None:
    calm = [0.3, 0.8, 0.06, 0.6, 0.9, 0.4]
    p_values = [*calm, *[0.002] * 20, *calm, *calm]
    statuses = [
        verdict.status for verdict in course([window(n, p, drift_rank_ratio=0.9) for n, p in enumerate(p_values)])
    ]
    assert set(statuses[:6]) == {"ok"}
    assert set(statuses[12:26]) == {"warn"}
    assert statuses[-1] == "ok"
    changes = sum(one != other for one, other in pairwise(statuses))
    assert changes == 2, "it does not flicker"


def test_over_time_sizes_are_medians_so_one_large_one_is_no_alarm() -> None:
    calm = [window(number, 0.002, drift_foreign_ratio=0.001) for number in range(8)]
    verdicts = course([*calm, window(8, 0.002, drift_foreign_ratio=0.5)])
    assert verdicts[-1].status == "ok"
    assert "by less than matters" in verdicts[-1].reason


def test_windows_that_are_rare_are_judged_one_by_one_within_the_level() -> None:
    verdicts = course([window(number, 0.008, every=DAY, drift_foreign_ratio=0.2) for number in range(3)])
    assert verdicts[-1].status == "fail"
    assert verdicts[-1].evidence.level == 0.01
    assert verdicts[-1].evidence.measurement == "drift_p_value"


def test_a_file_that_changes_once_a_day_is_judged_by_itself() -> None:
    files = [window(number, 0.004, every=DAY, drift_foreign_ratio=0.2) for number in range(3)]
    changed = [
        replace(each, provenance=replace(each.provenance, fingerprint=str(number))) for number, each in enumerate(files)
    ]
    assert course(changed)[-1].status == "fail"


def test_a_budget_for_many_spaces_asks_for_more_evidence() -> None:
    windows = [window(number, 0.002, drift_foreign_ratio=0.2) for number in range(12)]
    delays = [
        [verdict.status for verdict in course(windows, check)].index("fail")
        for check in (Drift(budget="1 per 1d"), Drift(), Drift(spaces=1_000))
    ]
    assert delays == sorted(set(delays))


def test_finer_p_values_tell_a_change_sooner() -> None:
    delays = []
    for p_value in (0.002, 4e-4, 2e-4):
        windows = [window(number, p_value, drift_foreign_ratio=0.2) for number in range(12)]
        delays.append([verdict.status for verdict in course(windows)].index("fail") + 1)
    assert delays == [5, 4, 3]


@pytest.mark.parametrize("ratio", [0.5, 2 / 3])
def test_a_blatant_change_is_told_beside_a_reference_as_short_as_the_window(ratio: float) -> None:
    windows = [window(number, 2e-4, ratio=ratio, drift_foreign_ratio=0.5) for number in range(5)]
    assert [verdict.status for verdict in course(windows)] == ["ok"] * 3 + ["fail"] * 2


def test_a_weak_change_beside_so_short_a_reference_is_said_to_stay_unsure() -> None:
    verdict = course([window(number, 0.002, ratio=2 / 3, drift_foreign_ratio=0.2) for number in range(9)])[-1]
    assert verdict.status == "ok"
    assert "beside so short a reference no number of windows like it would be sure" in verdict.reason


def test_windows_that_are_fairly_rare_are_judged_one_by_one_where_permutations_suffice() -> None:
    found = []
    for p_value in (4e-4, 8e-4):
        found += course([window(0, p_value, drift_foreign_ratio=0.2)], Drift(evaluations_per_day=24))
    assert [verdict.status for verdict in found] == ["fail", "ok"]
    assert found[0].evidence.level == pytest.approx(1 / 1_440)
    assert found[0].evidence.measurement == "drift_p_value"


def test_how_many_spaces_share_the_budget_may_change() -> None:
    spaces = 1_000
    check = Drift.over_time(alarms="1 per 30d", spaces=lambda: spaces)
    windows = [window(number, 2e-4, drift_foreign_ratio=0.2) for number in range(4)]
    many = course(windows, check)[-1]
    assert (many.status, many.evidence.budget) == ("ok", "1 per 30d over 1,000 spaces at 1,440 evaluations a day")
    spaces = 0
    none = course(windows, check)[-1]
    assert (none.status, none.evidence.budget) == ("fail", "1 per 30d at 1,440 evaluations a day")


def test_beside_a_reference_that_is_too_short_it_is_unknown() -> None:
    verdicts = course([window(number, 0.002, ratio=0.95, drift_foreign_ratio=0.2) for number in range(5)])
    assert verdicts[-1].status == "unknown"
    assert verdicts[-1].reason.startswith("The reference is too short beside so long a window")


def test_over_time_a_window_without_a_p_value_is_unknown() -> None:
    assert course([window(0, 0.5), window(1, None)])[-1].status == "unknown"


def test_evidence_over_time_goes_through_json() -> None:
    verdict = course([window(number, 0.002, drift_norm_ratio=0.9) for number in range(6)])[-1]
    again = Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
    assert again == verdict
    assert again.evidence.effect_limit == pytest.approx(1 / 1.01)


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="`budget` must be a number of false alarms"):
        Drift(budget="seldom")
    with pytest.raises(UsageError, match="`evaluations_per_day` must be above 0"):
        Drift(evaluations_per_day=0)
    with pytest.raises(UsageError, match="`spaces` must be 1 or more"):
        Drift(spaces=0)
