"""Metric, Measurement, Histogram."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedwatch.core import Histogram, Measurement, Metric, RegistrationError, UsageError

NORM = Metric("norm_mean", "Mean Euclidean norm.", healthy="steady")
ROWS = Metric("rows_total", "Rows seen.", unit="rows", kind="counter")
BY_GROUP = Metric("cohesion", "Mean cosine within a group.", labels=("group",))
SIZES = Metric("norms", "Norms.", kind="histogram")


class TestMetric:
    @pytest.mark.parametrize("name", ["Norm", "norm-mean", "", "1st", "norm mean"])
    def test_refuses_names_that_are_not_snake_case(self, name: str) -> None:
        with pytest.raises(RegistrationError, match="snake case"):
            Metric(name, "A sentence.")

    @pytest.mark.parametrize(("name", "kind"), [("rows", "counter"), ("rows_total", "gauge")])
    def test_counters_and_only_they_end_in_total(self, name: str, kind: Any) -> None:
        with pytest.raises(RegistrationError, match="_total"):
            Metric(name, "A sentence.", kind=kind)

    def test_help_is_a_sentence(self) -> None:
        with pytest.raises(RegistrationError, match="full stop"):
            Metric("norm_mean", "mean norm")

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_a_value_that_is_not_finite_means_not_enough_data(self, value: float) -> None:
        assert NORM.measure(value).value is None

    @pytest.mark.parametrize(
        ("name", "kind", "title"),
        [
            ("zero_rows_ratio", "gauge", "zero rows"),
            ("rows_total", "counter", "rows"),
            ("mean_cosine", "gauge", "mean cosine"),
        ],
    )
    def test_title_is_the_name_in_words(self, name: str, kind: Any, title: str) -> None:
        assert Metric(name, "A sentence.", kind=kind).title == title

    def test_zero_is_a_value(self) -> None:
        assert NORM.measure(0.0).value == 0.0

    @pytest.mark.parametrize(("metric", "labels"), [(BY_GROUP, {}), (BY_GROUP, {"label": "a"}), (NORM, {"group": "a"})])
    def test_refuses_labels_that_were_not_declared(self, metric: Metric, labels: dict[str, str]) -> None:
        with pytest.raises(UsageError, match="takes the labels"):
            metric.measure(1.0, **labels)

    def test_is_frozen(self) -> None:
        with pytest.raises(AttributeError):
            NORM.name = "other"  # type: ignore[misc]


class TestMeasurement:
    def test_number_is_the_value(self) -> None:
        assert ROWS.measure(3).number == 3.0
        assert isinstance(ROWS.measure(3).value, int)

    def test_a_histogram_and_a_missing_value_have_no_number(self) -> None:
        assert SIZES.measure(Histogram((1.0,), (1, 2), 5.0, 3)).number is None
        assert NORM.measure(None).number is None

    def test_what_is_not_finite_has_no_number_even_from_a_hand_made_file(self) -> None:
        data = json.loads(json.dumps(NORM.measure(1.0).to_json()).replace("1.0", "NaN"))
        assert Measurement.from_json(data).number is None

    @pytest.mark.parametrize(
        "measurement",
        [
            NORM.measure(1.5, error=0.1),
            NORM.measure(None),
            ROWS.measure(2**53 + 1),
            BY_GROUP.measure(-0.25, group='ein "Wort" in\n人'),
            SIZES.measure(Histogram((0.5, 1.0), (1, 0, 7), 9.5, 8)),
        ],
        ids=lambda m: m.name,
    )
    def test_survives_json(self, measurement: Measurement) -> None:
        again = Measurement.from_json(json.loads(json.dumps(measurement.to_json(), allow_nan=False)))
        assert again.to_json() == measurement.to_json()
        assert again.value == measurement.value
        assert type(again.value) is type(measurement.value)
        assert dict(again.labels) == dict(measurement.labels)
        assert (again.metric.kind, again.metric.unit, again.metric.help, again.metric.healthy) == (
            measurement.metric.kind,
            measurement.metric.unit,
            measurement.metric.help,
            measurement.metric.healthy,
        )

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_every_finite_number_survives_json_bit_for_bit(self, value: float) -> None:
        assert Measurement.from_json(json.loads(json.dumps(NORM.measure(value).to_json()))).value == value


class TestHistogram:
    def test_needs_one_count_more_than_bounds(self) -> None:
        with pytest.raises(UsageError, match="one entry more"):
            Histogram((1.0, 2.0), (1, 2), 3.0, 3)

    def test_n_is_the_sum_of_the_counts(self) -> None:
        with pytest.raises(UsageError, match="sum of `counts`"):
            Histogram((1.0,), (1, 2), 3.0, 4)
