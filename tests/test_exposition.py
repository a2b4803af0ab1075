"""Names in Prometheus: valid, told apart, and the same wherever they are used."""

from __future__ import annotations

import pytest

from embedwatch.core import Diagnostic, Metric, RegistrationError, Statistic
from embedwatch.core.registry import registered
from embedwatch.exposition import (
    OWN,
    PREFIX,
    PROCESS,
    SERVED,
    SPACE_LABELS,
    Family,
    catalogue,
    exposed_name,
    family_of,
    joined,
)


def test_every_metric_that_can_be_measured_is_in_the_catalogue() -> None:
    found = catalogue()
    declared = [m for plugin in registered(Statistic).values() for m in plugin.metrics]
    declared += [m for plugin in registered(Diagnostic).values() for m in plugin.metrics]
    assert set(found) == {exposed_name(metric) for metric in declared} | {family.name for family in (*OWN, *SERVED)}
    assert len(declared) > 30


def test_names_labels_and_help_are_what_prometheus_recommends() -> None:
    for name, family in catalogue().items():
        assert name == family.name
        assert name.startswith(PREFIX) or family in PROCESS, "names of processes are everybody's"
        assert family.help.endswith(".")
        assert (family.kind == "counter") == name.endswith("_total")
        assert len(set(family.labels)) == len(family.labels)


def test_a_family_says_how_queries_write_it() -> None:
    histogram = family_of(Metric("norm", "Norms.", kind="histogram", labels=("side",)))
    assert histogram.series == ("embedwatch_norm_bucket", "embedwatch_norm_sum", "embedwatch_norm_count")
    assert histogram.labels == (*SPACE_LABELS, "side")
    assert family_of(Metric("rows_total", "Rows.", kind="counter")).series == ("embedwatch_rows_total",)


@pytest.mark.parametrize("name", ["größe", "名", "ﬁne"])
def test_a_name_that_prometheus_cannot_show_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="ASCII"):
        family_of(Metric(name, "Bad."))


@pytest.mark.parametrize("label", ["model", "head", "le", "__name__", "a-b", "größe", "0", ""])
def test_a_label_that_is_taken_or_odd_is_refused(label: str) -> None:
    with pytest.raises(RegistrationError, match="labels"):
        family_of(Metric("fine", "Fine.", labels=(label,)))


@pytest.mark.parametrize("name", ["series", "window_rows", "label_overflow", "threshold", "http_requests"])
def test_a_name_of_what_the_exposition_adds_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError, match="exposition adds"):
        family_of(Metric(name, "Bad."))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Family("embedwatch_a", "A."), Family("embedwatch_a", "A.", "histogram")),
        (Family("embedwatch_a", "A."), Family("embedwatch_a", "A.", labels=("x",))),
        (Family("embedwatch_a_sum", "A."), Family("embedwatch_a", "A.", "histogram")),
        (Family("embedwatch_a_bucket", "A."), Family("embedwatch_a", "A.", "histogram")),
        (Family("embedwatch_a", "A."), Family("embedwatch_a_total", "A.", "counter")),
        (Family("embedwatch_a_created", "A."), Family("embedwatch_a_total", "A.", "counter")),
    ],
)
def test_two_metrics_cannot_need_one_name(one: Family, other: Family) -> None:
    for pair in ((one, other), (other, one)):
        with pytest.raises(RegistrationError, match="share a name"):
            joined(pair)


def test_a_metric_that_two_plugins_share_is_one_family() -> None:
    shared = Family("embedwatch_a", "A.")
    assert joined([shared, Family("embedwatch_a", "A.")]) == {"embedwatch_a": shared}
