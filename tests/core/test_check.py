"""Check and ThresholdCheck."""

from __future__ import annotations

from typing import ClassVar

import pytest

from embedwatch.core import Limit, Metric, Provenance, RangeCheck, Snapshot, Space, ThresholdCheck

COSINE = Metric("mean_cosine", "Mean cosine.", unit="x")
OTHER = Metric("other", "Other.")


class Collapse(ThresholdCheck, register=False):
    """Rows point the same way."""

    name = "collapse_for_tests"
    metric = "mean_cosine"
    limit = Limit(warn=0.9, fail=0.98)
    exhibits = ("worst",)

    def minimum_rows(self, snapshot: Snapshot) -> int:
        return 2 * (snapshot.provenance.dimension or 1)


def snap(value: float | None, rows: int = 100, metric: Metric = COSINE) -> Snapshot:
    return Snapshot(Space("m", "p"), (metric.measure(value, error=0.01),), Provenance(time=0, rows=rows, dimension=8))


def test_reads_the_metric_it_judges() -> None:
    assert Collapse.reads == ("mean_cosine",)
    assert Collapse().applies(snap(0.5))
    assert not Collapse().applies(snap(0.5, metric=OTHER))


def test_a_check_may_read_more() -> None:
    class Wider(Collapse, register=False):
        """Reads two."""

        metric = "mean_cosine"
        reads = ("mean_cosine", "other")

    assert Wider.reads == ("mean_cosine", "other")
    assert not Wider().applies(snap(0.5))


def test_evidence_holds_value_limit_rows_unit_error_and_exhibits() -> None:
    evidence = Collapse().evaluate(snap(0.95))
    assert (evidence.value, evidence.limit, evidence.rows) == (0.95, Collapse.limit, 100)
    assert (evidence.unit, evidence.error, evidence.exhibits) == ("x", 0.01, ("worst",))


@pytest.mark.parametrize(
    ("value", "rows", "words"), [(0.95, 15, "15 rows are too few, needs 16"), (None, 100, "Not enough data")]
)
def test_too_little_data_is_no_value_with_a_reason(value: float | None, rows: int, words: str) -> None:
    evidence = Collapse().evaluate(snap(value, rows))
    assert evidence.value is None
    assert words in evidence.reason


def test_judges_the_measurement_with_its_labels() -> None:
    class Labelled(Collapse, register=False):
        """Reads one of several."""

        metric = "margin"
        labels: ClassVar = {"mean": "removed"}

    margin = Metric("margin", "Margin.", labels=("mean",))
    both = (margin.measure(0.1, mean="kept"), margin.measure(0.99, mean="removed"))
    snapshot = Snapshot(Space("m", "p"), both, Provenance(time=0, rows=100, dimension=8))
    assert Labelled().applies(snapshot)
    assert Labelled().evaluate(snapshot).value == 0.99


def test_enough_rows_at_the_very_minimum() -> None:
    assert Collapse().evaluate(snap(0.95, rows=16)).value == 0.95


def test_a_snapshot_without_the_metric_is_no_value() -> None:
    assert Collapse().evaluate(snap(0.5, metric=OTHER)).value is None


class Between(RangeCheck, register=False):
    """Neither too small nor too large."""

    name = "between_for_tests"
    metric = "mean_cosine"
    limit = Limit(warn=10, fail=100)
    floor = Limit(warn=0.1, fail=0.01, side="below")


@pytest.mark.parametrize(
    ("value", "status", "limit"),
    [
        (0.001, "fail", "floor"),
        (0.1, "warn", "floor"),
        (1.0, "ok", "limit"),
        (10.0, "warn", "limit"),
        (1e9, "fail", "limit"),
    ],
)
def test_a_range_has_two_sides(value: float, status: str, limit: str) -> None:
    evidence = Between().evaluate(snap(value))
    assert evidence.limit is getattr(Between, limit)
    assert evidence.limit.status(value) == status


def test_a_range_without_a_value_is_unknown() -> None:
    evidence = Between().evaluate(snap(None))
    assert (evidence.value, evidence.limit) == (None, Between.limit)


def test_a_range_may_judge_what_it_makes_of_the_number() -> None:
    class Halved(Between, register=False):
        """Judges half of it."""

        def value(self, snapshot: Snapshot, number: float) -> float | None:
            return number / 2

    assert Halved().evaluate(snap(0.3)).value == 0.15
    assert Halved().evaluate(snap(0.15)).limit is Between.floor
