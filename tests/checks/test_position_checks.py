"""Checks of positions read numbers alone: each turns where it should, says so in one sentence, and names a remedy."""

from __future__ import annotations

import pytest

from embedwatch.core import Check, Metric, Provenance, Snapshot, Space
from embedwatch.core.registry import get, registered
from embedwatch.judging import Judge

NAMES = [name for name, cls in registered(Check).items() if cls.roles == ("positions",)]


def snapshot(**numbers: float) -> Snapshot:
    measured = tuple(Metric(name, "A number.").measure(value) for name, value in numbers.items())
    return Snapshot(Space("model", "positions"), measured, Provenance(0.0, 1, role="positions"))


def status(check: str, **numbers: float) -> tuple[str, str]:
    (verdict,) = Judge([get(Check, check)()]).judge(snapshot(**numbers))
    return verdict.status, verdict.reason


@pytest.mark.parametrize(
    ("check", "healthy", "warned", "failed"),
    [
        ("position_alias", 2.09, 0.9, 0.1),
        ("position_resolution", 0.0288, 4.9e-4, None),
        ("position_unseen", 0.0, 0.1, 0.28),
        ("position_length_shift", 0.0, 0.5, None),
        ("position_frequencies", 1e-6, None, 0.5),
        ("position_frequency_rounding", 0.0, None, 5.0),
        ("position_numbers", 0.0, 0.001, 0.81),
        ("position_angles", 0.004, None, 1.9),
        ("position_autocast", 0.004, 1.9, None),
        ("position_copies", 0, 1, 384),
        ("position_dead", 0, 1, 12),
        ("position_untrained", 0, 112, None),
        ("position_repeats", 0.645, 0.92, 1.0),
        ("position_range", 0, 1, None),
        ("position_table_end", 0, None, 1),
        ("position_cache", 0, None, 16),
        ("position_falloff", -0.3, 0.5, 3.0),
        ("position_base", 0.0, 0.06, 2.0),
        ("position_ends", 1.3, 5.0, None),
    ],
)
def test_limits(check: str, healthy: float, warned: float | None, failed: float | None) -> None:
    metric = get(Check, check).reads[0]
    assert status(check, **{metric: healthy})[0] == "ok"
    if warned is not None:
        found, reason = status(check, **{metric: warned})
        assert found == "warn"
        assert reason.endswith(".")
    if failed is not None:
        assert status(check, **{metric: failed})[0] == "fail"


def test_a_temperature_may_be_too_large_or_too_small() -> None:
    assert status("position_temperature", position_temperature_ratio=1.0)[0] == "ok"
    assert status("position_temperature", position_temperature_ratio=1.208)[0] == "fail"
    assert status("position_temperature", position_temperature_ratio=1 / 1.208)[0] == "warn"
    assert status("position_temperature", position_temperature_ratio=0.7)[0] == "fail"


def test_reasons_name_what_was_found() -> None:
    theta = {"position_base": 5e5, "position_base_found": 1e4, "position_stretch_found": 1.0}
    assert (
        "θ = 10,000, where the configuration states 500,000"
        in status("position_frequencies", position_frequency_error_ratio=0.9, **theta)[1]
    )
    same = {"position_base": 1e4, "position_base_found": 1e4, "position_stretch_found": 8.0}
    assert "8 times slower" in status("position_frequencies", position_frequency_error_ratio=0.9, **same)[1]
    rounded = {"position_first_shared": 256, "position_numbers_bits": 8}
    assert (
        "from position 256 on, as numbers rounded to bfloat16"
        in status("position_numbers", position_shared_ratio=0.8, **rounded)[1]
    )
    weights = {"position_base": 1e4, "position_base_of_weights": 1e5}
    assert (
        "θ near 100,000, where the configuration states 10,000"
        in status("position_base", position_base_gain_nats=2.0, **weights)[1]
    )


def test_ends_far_from_neighbours_are_healthy() -> None:
    far = {"position_ends_over_middle_ratio": 5.0, "position_ends_over_neighbour_ratio": 0.4}
    assert status("position_ends", **far)[0] == "ok"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_not_judged(name: str) -> None:
    check = get(Check, name)()
    empty = Snapshot(
        Space("model", "positions"),
        tuple(Metric(metric, "A number.").measure(None) for metric in check.reads),
        Provenance(0.0, 1, role="positions"),
    )
    assert not check.applies(empty)


def test_remedies_name_ways_out() -> None:
    ways = ("RoPE", "ALiBi", "chunks with separators")
    for name in ("position_range", "position_table_end", "position_alias", "position_ends", "position_repeats"):
        assert all(way in get(Check, name).mitigation for way in ways), name


def test_a_saving_that_may_be_chance_is_none() -> None:
    metric = Metric("position_base_gain_nats", "A number.", "nats")
    for error, expected in ((0.001, "warn"), (0.05, "ok")):
        measured = (metric.measure(0.06, error=error),)
        shown = Snapshot(Space("model", "positions"), measured, Provenance(0.0, 1, role="positions"))
        (verdict,) = Judge([get(Check, "position_base")()]).judge(shown)
        assert verdict.status == expected
