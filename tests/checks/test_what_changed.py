"""Each kind of change has one name, and what is told beside it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from embedwatch import Judge, Metric, Provenance, Snapshot, Space, UsageError, Verdict
from embedwatch.checks.drift import SIZES
from embedwatch.checks.what_changed import CANARY, CHANGES, GRADES, HELD, WhatChanged
from embedwatch.core import History

HEALTHY: Mapping[str, float | None] = {
    "drift_p_value": 0.5,
    "drift_foreign_ratio": 0.0,
    "drift_centroid_ratio": 0.0,
    "drift_variance_ratio": 1.0,
    "drift_rank_ratio": 1.0,
    "drift_norm_ratio": 1.0,
    "transformation_aside_ratio": 0.01,
    "transformation_common_ratio": 0.05,
    "transformation_concentration_ratio": 1.0,
    "transformation_filled_ratio": 1.0,
    "transformation_gone_ratio": 0.0,
    "transformation_lead_ratio": 1.0,
    "transformation_lost_ratio": 0.0,
    "transformation_moved_ratio": 0.02,
    "transformation_norm_ratio": 1.0,
    "transformation_norm_spread_ratio": 0.0,
    "transformation_offset_ratio": 0.01,
    "transformation_overlap_ratio": 0.95,
    "transformation_spectrum_distance": 0.05,
    "transformation_tail_ratio": 1.0,
    "transformation_trailing_dimensions": 0.0,
    "transformation_within_ratio": 1.0,
    "transformation_empty_dimensions{side=reference}": 3.0,
    "transformation_empty_dimensions{side=window}": 3.0,
    "transformation_unit_ratio{side=reference}": 1.0,
    "transformation_unit_ratio{side=window}": 1.0,
    "transformation_exact_ratio{precision=bfloat16,side=reference}": 0.0,
    "transformation_exact_ratio{precision=bfloat16,side=window}": 0.0,
}
SURE = {"drift_p_value": 0.002, "drift_centroid_ratio": 0.1}


def snapshot(numbers: Mapping[str, float | None] = {}, time: float = 0) -> Snapshot:
    """Return healthy numbers but for some; names stand without `transformation_` and `_ratio` where that is clear."""
    changed = dict(HEALTHY)
    for name, number in numbers.items():
        known = [key for key in HEALTHY if key in (name, f"transformation_{name}", f"transformation_{name}_ratio")]
        (key,) = known or [name]
        changed[key] = number
    measured = []
    for key, number in changed.items():
        name, _, text = key.partition("{")
        labels = dict(pair.split("=") for pair in text[:-1].split(",")) if text else {}
        measured.append(Metric(name, "A number.", labels=tuple(labels)).measure(number, error=None, **labels))
    return Snapshot(Space("m", "p"), tuple(measured), Provenance(time=time, rows=1_000))


def judged(numbers: Mapping[str, float | None] = {}, history: History | None = None) -> Verdict:
    (verdict,) = Judge([WhatChanged()]).judge(snapshot(numbers), history=history)
    return verdict


SIGNATURES: Mapping[str, Mapping[str, float]] = {
    "rotation": {"filled": 9_000, "lead": 0.91, "tail": 1.7},
    "model": {"filled": 8e4, "lead": 0.26, "tail": 6.7, "concentration": 48, "spectrum": 0.2},
    "rank": {"transformation_empty_dimensions{side=window}": 128, "tail": 0.35, "lead": 1.05},
    "pooling": {"offset": 0.21, "aside": 0.2, "common": 0.7, "lead": 0.97},
    "collapse": {"concentration": 1.2, "offset": 0.03, "norm": 0.95},
    "noise": {"filled": 800, "transformation_empty_dimensions{side=window}": 0, "lead": 0.98, "tail": 1.08},
    "settings": {"filled": 600, "lead": 0.96, "tail": 1.05, "offset": 0.06, "concentration": 0.8},
    "norms": {
        "norm": 1.05,
        "transformation_unit_ratio{side=reference}": 0.0,
        "transformation_unit_ratio{side=window}": 0.0,
    },
    "content": {"drift_foreign_ratio": 0.08, "tail": 1.1},
    "mix": {"moved": 0.2, "aside": 0.06, "offset": 0.06},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_change_is_named_where_rows_surely_differ(name: str) -> None:
    assert WhatChanged().named(snapshot({**SIGNATURES[name], **SURE})) == name
    assert WhatChanged().named(snapshot(SIGNATURES[name])) == "nothing"
    verdict = judged({**SIGNATURES[name], **SURE})
    assert verdict.status == "warn"
    assert verdict.reason.startswith(f"{name.capitalize()}: ")


@pytest.mark.parametrize(
    ("name", "numbers", "status"),
    [
        ("truncation", {"trailing_dimensions": 128}, "warn"),
        ("normalisation", {"transformation_unit_ratio{side=reference}": 0.0}, "warn"),
        ("normalisation", {"transformation_unit_ratio{side=window}": 0.0, "norm_spread": 0.1}, "warn"),
        ("precision", {"transformation_exact_ratio{precision=bfloat16,side=window}": 1.0}, "ok"),
    ],
)
def test_some_changes_are_told_where_drift_is_silent(name: str, numbers: dict[str, float], status: str) -> None:
    verdict = judged(numbers)
    assert verdict.reason.startswith(f"{name.capitalize()}: ")
    assert verdict.status == status
    assert judged({**numbers, "drift_p_value": None}).reason.startswith(f"{name.capitalize()}: ")


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("rotation", {"lead": 0.9, "tail": 2.3, "offset": 0.4, "aside": 0.4, "common": 0.9}),
        ("model", {"lead": 0.17, "tail": 11, "concentration": 1.8}),
        ("noise", {"lead": 0.98, "tail": 1.25, "drift_foreign_ratio": 0.03}),
    ],
)
def test_where_the_reference_has_no_empty_directions_its_last_ones_tell(name: str, numbers: dict[str, float]) -> None:
    assert WhatChanged().named(snapshot({**numbers, **SURE, "filled": None})) == name
    assert WhatChanged().named(snapshot({**numbers, **SURE})) != name


@pytest.mark.parametrize("more", [{}, {"drift_foreign_ratio": 0.05, "tail": 1.1}, {"moved": 0.2, "aside": 0.06}])
def test_no_content_fills_directions_that_the_model_leaves_empty(more: dict[str, float]) -> None:
    """A turn by a few degrees moves nothing else that is far from chance."""
    assert WhatChanged().named(snapshot({"filled": 500, "lead": 0.99, **more, **SURE})) == "rotation"
    few = {"transformation_empty_dimensions{side=window}": None}  # fewer rows than twice the dimensions
    assert WhatChanged().named(snapshot({"filled": 500, "lead": 0.99, **more, **few, **SURE})) == "settings"


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("content", {"moved": 0.25, "aside": 0.08, "gone": 0.15, "lost": 0.2}),  # a topic of four is gone
        ("content", {"moved": 0.12, "aside": 0.06, "gone": 0.0, "lost": 0.05}),  # a fifth is gone, by regions across
        ("mix", {"moved": 0.19, "aside": 0.07, "gone": 0.0, "lost": 0.07}),  # half of the space has a third
        ("mix", {"moved": 0.1, "aside": 0.04, "gone": 0.0, "lost": 0.0}),
        ("mix", {"moved": 0.06, "aside": 0.04, "gone": 0.0, "lost": 0.0, "drift_centroid_ratio": 0.06}),
        ("mix", {"moved": 0.2, "aside": 0.05, "gone": 0.022, "lost": 0.05}),  # one small region is empty by chance
        ("content", {"moved": 0.03, "aside": 0.01, "drift_foreign_ratio": 0.012}),  # a new topic
    ],
)
def test_a_topic_that_is_gone_is_told_from_another_mix(name: str, numbers: dict[str, float]) -> None:
    assert WhatChanged().named(snapshot({**numbers, **SURE})) == name


def test_a_turn_of_a_strong_mean_is_no_other_pooling() -> None:
    """A model whose mean is long moves it far where its space turns by a few degrees; pooling fills nothing."""
    moved = {"offset": 0.3, "aside": 0.3, "common": 0.9, **SURE}
    assert WhatChanged().named(snapshot({**moved, "filled": 300})) == "rotation"
    assert WhatChanged().named(snapshot({**moved, "filled": None})) == "pooling"


def test_every_change_of_the_table_can_be_reached() -> None:
    told = {"truncation", "normalisation", "precision"}
    assert {change.name for change in CHANGES} == told | set(SIGNATURES)


def test_rows_of_one_length_that_grew_are_grown_and_not_unnormalised() -> None:
    numbers = {"transformation_unit_ratio{side=window}": 0.0, "norm": 1.05, **SURE}
    assert WhatChanged().named(snapshot(numbers)) == "norms"


def test_a_coarse_reference_stays_as_it_was() -> None:
    keys = [f"transformation_exact_ratio{{precision=bfloat16,side={side}}}" for side in ("reference", "window")]
    assert WhatChanged().named(snapshot(dict.fromkeys(keys, 1.0))) == "nothing"
    assert WhatChanged().named(snapshot({keys[0]: 1.0})) == "nothing"


def test_sizes_are_graded_as_drift_grades_them() -> None:
    shared = {name: sizes for name, sizes in GRADES.items() if name.startswith("drift_")}
    assert {size.metric: (size.none, size.warn, size.fail) for size in SIZES} == shared
    mix = SIGNATURES["mix"]
    few = {**mix, **SURE, "drift_centroid_ratio": 0, "moved": 0.06}
    assert judged(few).status == "ok"
    assert judged({**few, "moved": 0.08}).status == "warn"
    assert judged({**few, "moved": 0.3}).status == "fail"
    assert judged({**mix, **SURE, "drift_centroid_ratio": 0.3}).status == "fail"
    assert judged({**mix, **SURE}).evidence.exhibits == ("foreign_rows", "cells_gained", "cells_lost")


def test_the_reason_has_evidence_the_next_nearest_and_what_to_do() -> None:
    reason = judged({**SIGNATURES["rotation"], **SURE}).reason
    assert "directions that were empty hold 9e+03 times what they held; leading directions hold 91%" in reason
    assert "Next nearest: " in reason
    assert reason.endswith(
        CANARY + " Encode the old rows again, or go back to the old model; never mix both in one index."
    )
    assert "empty;" not in reason


def test_what_has_no_name_is_said_to_have_none() -> None:
    assert judged().reason == "Nothing (p = 0.5)."
    assert judged({"drift_p_value": 0.002}).reason == (
        "Nothing that matters: surely different (p = 0.002), and by little."
    )
    other = judged(SURE)
    assert other.reason == "Other: surely different (p = 0.002), and in none of the ways that are known."
    assert (other.status, WhatChanged().named(snapshot(SURE))) == ("warn", "other")


def test_too_few_rows_are_unknown() -> None:
    verdict = judged(dict.fromkeys(HEALTHY, None))
    assert (verdict.status, verdict.reason) == ("unknown", "Too little is known to say; see `drift`.")
    assert WhatChanged().named(snapshot(dict.fromkeys(HEALTHY, None))) is None


def test_beside_a_past_several_windows_must_differ() -> None:
    numbers = {**SIGNATURES["mix"], **SURE}
    healthy, changed = snapshot(time=1), snapshot(numbers, time=2)
    assert judged(numbers, History([healthy, healthy])).status == "ok"
    assert judged(numbers, History([healthy, *[changed] * (HELD - 1)])).status == "warn"
    assert judged({"trailing_dimensions": 4}, History([healthy])).status == "warn"


def test_the_level_can_be_chosen() -> None:
    numbers = snapshot({**SIGNATURES["mix"], **SURE})
    assert WhatChanged(level=0.001).named(numbers) == "nothing"
    with pytest.raises(UsageError, match="`level` must be above 0"):
        WhatChanged(level=1)
