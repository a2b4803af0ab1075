"""A difference must be both sure and large enough."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from embedwatch import Judge, Metric, Provenance, Snapshot, Space, UsageError, Verdict
from embedwatch.checks.drift import SIZES, Drift

FOREIGN = {"drift_foreign_ratio": 0.05}
STILL = {size.metric: size.none for size in SIZES}


def judged(
    p_value: float | None, sizes: Mapping[str, float | None] = {}, *, level: float = 0.01, shift: float | None = 0.5
) -> Verdict:
    numbers = {**STILL, "drift_p_value": p_value, "drift_rows": 400, "drift_rows_needed": 900, **sizes}
    measured = [Metric(name, "A number.").measure(value) for name, value in numbers.items()]
    family = Metric("drift_family_p_value", "A number.", labels=("family",))
    families = [family.measure(p_value, family="content"), family.measure(shift, family="shift")]
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
    assert verdict.evidence.exhibits == ("foreign_rows", "cells_gained", "cells_lost")
    assert "by less than matters" in judged(0.002).reason


def test_too_few_rows_are_unknown_with_the_number_that_would_do() -> None:
    verdict = judged(None, {"drift_decay_length": 9.0})
    assert verdict.status == "unknown"
    assert verdict.reason == (
        "400 rows are too few, since 9 rows in a row are about one thing: each side needs 900, "
        "the reference twice as many."
    )
    assert judged(None, {"drift_rows_needed": None}).reason.startswith("None of 500 rows could be compared: ")


def test_where_only_content_was_compared_no_difference_is_no_clearance() -> None:
    verdict = judged(0.5, shift=None)
    assert verdict.status == "unknown"
    assert verdict.reason.startswith("Content does not differ; 400 rows are too few")
    assert judged(0.002, FOREIGN, shift=None).status == "warn"
