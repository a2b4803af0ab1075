"""An exhibit becomes a chart by its shape, or by its name."""

from __future__ import annotations

import math

import pytest

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Histogram, Metric
from embedwatch.report.known import charts_of, histogram_charts
from embedwatch.report.shapes import MANY_POINTS, curve_chart, matrix_chart, points_chart
from tests.report.inputs import exhibits

EVERY = {exhibit.name: exhibit for exhibit in exhibits()}


def test_every_shape_but_the_plain_table_gets_a_chart() -> None:
    kinds = {name: [chart.kind for chart in charts_of(exhibit)] for name, exhibit in EVERY.items()}
    assert kinds.pop("table_of_somebody") == []
    assert all(len(found) == 1 for found in kinds.values()), kinds
    assert kinds["attention_heads_table"] == ["heat"]
    assert kinds["hubs"] == ["bars"]


def test_an_exhibit_without_rows_gets_none() -> None:
    assert charts_of(Exhibit.build("spectrum", "curve", "x", ("direction", "variance"), [])) == []


def test_a_curve_is_sorted_and_split_by_its_text() -> None:
    rows = [(2, "b", 4.0), (1, "a", 1.0), (1, "b", 3.0), (2, "a", 2.0)]
    chart = curve_chart(Exhibit.build("c", "curve", "x", ("step", "which", "value"), rows))
    assert chart is not None
    assert [(each["name"], each["data"]) for each in chart.data["series"]] == [
        ("b", [(1, 3.0), (2, 4.0)]),
        ("a", [(1, 1.0), (2, 2.0)]),
    ]


def test_a_curve_over_names_becomes_bars() -> None:
    chart = curve_chart(Exhibit.build("c", "curve", "x", ("layer", "edge"), [("layer.0", 2.0), ("layer.1", 3.0)]))
    assert chart is not None
    assert (chart.kind, chart.data["labels"]) == ("bars", ["layer.0", "layer.1"])


def test_what_is_not_finite_is_a_gap() -> None:
    chart = curve_chart(Exhibit.build("c", "curve", "x", ("a", "b"), [(1, math.nan), (2, math.inf), (3, 1.0)]))
    assert chart is not None
    assert chart.data["series"][0]["data"] == [(1, None), (2, None), (3, 1.0)]


def test_an_axis_over_orders_is_logarithmic() -> None:
    chart = curve_chart(Exhibit.build("c", "curve", "x", ("a", "b"), [(1, 1e-6), (2, 1.0)]))
    assert chart is not None
    assert (chart.data["x"]["type"], chart.data["y"]["type"]) == ("value", "log")


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    rows = [(step, float(step)) for step in range(5_000)]
    chart = curve_chart(Exhibit.build("c", "curve", "x", ("a", "b"), rows))
    assert chart is not None
    data = chart.data["series"][0]["data"]
    assert len(data) <= MANY_POINTS + 1
    assert (data[0], data[-1]) == ((0, 0.0), (4_999, 4999.0))


@pytest.mark.parametrize("columns", [(), ("a",), ("text",)])
def test_what_cannot_be_drawn_is_none(columns: tuple[str, ...]) -> None:
    row = tuple("x" if name == "text" else 1 for name in columns)
    empty = Exhibit("e", "curve", "x", columns, (row,))
    assert curve_chart(empty) is None or curve_chart(empty).kind == "bars"  # type: ignore[union-attr]
    assert points_chart(empty) is None
    assert matrix_chart(empty) is None


def test_a_matrix_has_panels_and_names_at_its_axes() -> None:
    heads = charts_of(EVERY["attention_heads_table"])[0]
    assert [panel["name"] for panel in heads.data["panels"]] == ["entropy"]
    assert heads.data["panels"][0]["cells"][5] == [1, 1, 0.1]
    head = charts_of(EVERY["attention_head_3_1"])[0]
    assert head.title == "attention of layer 3, head 1"
    assert head.data["panels"][0]["x"][2] == "b 2"
    topics = charts_of(EVERY["word_topics"])[0]
    assert sorted(topics.data["panels"][0]["cells"]) == [[0, 0, 0.5], [0, 1, -0.1], [1, 0, -0.1], [1, 1, 0.4]]


def test_norms_are_steps_with_gaps_and_without_zero() -> None:
    rows = [(1.0, 1.1, 5), (0.0, 1e-38, 2), (1.2, 1.3, 9)]
    chart = charts_of(Exhibit.build("norm_distribution", "curve", "Norms.", ("from", "to", "rows"), rows))[0]
    assert chart.data["series"][0]["data"] == [(1.0, 5), (1.1, 0), (1.2, 9), (1.3, 0)]
    assert "2 with norm zero" in chart.caption
    assert chart.data["x_lines"][0]["value"] == pytest.approx(1.249, abs=1e-3)


def test_the_sum_of_a_spectrum_ends_at_one() -> None:
    chart = charts_of(EVERY["spectrum"])[0]
    assert chart.data["series"][1]["data"] == [(1, 0.9), (2, 1.0), (3, 1.0)]
    assert chart.data["series"][0]["data"][2] == (3, None)  # a logarithm of zero is none


def test_a_measured_distribution_has_a_picture() -> None:
    metric = Metric("norm", "Norms.", kind="histogram")
    (chart,) = histogram_charts([metric.measure(Histogram((1.0, 2.0), (3, 4, 1), 12.0, 8))])
    assert chart.data["series"][0]["data"] == [(0.0, 3), (1.0, 4), (2.0, 1)]
