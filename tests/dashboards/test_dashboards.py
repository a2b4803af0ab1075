"""The dashboards: linted, parsed, and about metrics and labels that exist."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedwatch.exposition import catalogue
from embedwatch.operations import Query, dashboard_queries, expressions, resolve, rule_expressions, shipped
from embedwatch.operations.panels import COLUMNS, laid_out, row, stat
from embedwatch.operations.queries import panels
from tests.dashboards import linter
from tests.dashboards.linter import names, selectors
from tests.dashboards.tools import DASHBOARDS, committed_dashboards, committed_rules, needs_promtool, parse_errors

ALL = committed_dashboards()
OVERVIEW = ALL["embedwatch-overview.json"]
PROCESS = {"job", "instance"}
FOREIGN = {
    **dict.fromkeys(("up", "scrape_duration_seconds", "scrape_samples_scraped"), PROCESS),
    "ALERTS": PROCESS | {"alertname", "alertstate", "severity", "model", "place", "segment", "check"},
}
"""Metrics that Prometheus itself makes, with their labels."""


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """Labels of every series that can exist, by its name."""
    exposed = {
        series: {*family.labels, *PROCESS, *({"le"} if family.kind == "histogram" else ())}
        for family in catalogue().values()
        for series in family.series
    }
    return {**exposed, **FOREIGN}


def every_query() -> list[Query]:
    found = [query for dashboard in ALL.values() for query in dashboard_queries(dashboard)]
    return [*found, *rule_expressions(committed_rules())]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rule", linter.RULES, ids=lambda rule: rule.__name__)
def test_the_rule_holds(rule: linter.Rule, name: str) -> None:
    assert rule(ALL[name]) == []


class TestQueries:
    @needs_promtool
    def test_every_expression_can_be_parsed(self, tmp_path: Path) -> None:
        assert parse_errors([resolve(query.expr) for query in every_query()], tmp_path) == ""

    @needs_promtool
    def test_what_cannot_be_parsed_is_found(self, tmp_path: Path) -> None:
        assert "expected type range vector" in parse_errors(["up", "rate(embedwatch_norm_sum)"], tmp_path)

    def test_every_metric_exists(self, labels: dict[str, set[str]]) -> None:
        missing = {(query.place, name) for query in every_query() for name in names(query.expr) if name not in labels}
        assert missing == set()

    def test_every_label_exists(self, labels: dict[str, set[str]]) -> None:
        wrong = {
            (query.place, selector.metric, label)
            for query in every_query()
            for selector in selectors(query.expr)
            for label in selector.matchers
            if label not in labels.get(selector.metric, {label})
        }
        assert wrong == set()

    def test_every_label_that_is_grouped_by_exists(self, labels: dict[str, set[str]]) -> None:
        for query in every_query():
            known = set().union(*(labels.get(name, set()) for name in names(query.expr)))
            grouped = {label for found in re.findall(r"by \(([^)]*)\)", query.expr) for label in found.split(", ")}
            assert grouped <= known, query.place

    def test_metrics_of_annotations_exist(self, labels: dict[str, set[str]]) -> None:
        for group in committed_rules()["groups"]:
            for rule in (rule for rule in group["rules"] if "alert" in rule):
                for name in re.findall(r"\bembedwatch_\w+", rule["annotations"]["description"]):
                    assert name in labels, rule["alert"]

    def test_every_check_whose_limits_are_drawn_exists(self) -> None:
        drawn = {
            selector.matchers["check"].strip('="')
            for query in every_query()
            for selector in selectors(query.expr)
            if selector.metric == "embedwatch_threshold"
        }
        assert drawn
        assert drawn <= {check.name for check in shipped()}

    def test_a_panel_shows_the_number_that_its_limit_is_about(self) -> None:
        """A limit is drawn beside the measurement that its check reads."""
        checks = {check.name: check for check in shipped()}
        for dashboard in ALL.values():
            for panel in panels(dashboard):
                found = [selector for query in panel["targets"] for selector in selectors(query["expr"])]
                for limit in found:
                    if limit.metric == "embedwatch_threshold":
                        reads = {f"embedwatch_{name}" for name in checks[limit.matchers["check"].strip('="')].reads}
                        assert reads & {selector.metric for selector in found}, panel["title"]


class TestResolve:
    def test_fills_in_what_is_given_and_chooses_everything_else(self) -> None:
        expr = 'rate(a{job=~"$job",place=~"${place:regex}"}[$__rate_interval])'
        assert resolve(expr, {"place": "pooled"}) == 'rate(a{job=~".+",place=~"pooled"}[5m])'

    def test_an_unknown_variable_is_an_error(self) -> None:
        with pytest.raises(KeyError, match="nobody"):
            resolve('a{job="$nobody"}')

    def test_no_variable_is_left(self) -> None:
        assert [query for query in every_query() if "$" in resolve(query.expr)] == []

    def test_variables_and_annotations_are_among_the_queries(self) -> None:
        for dashboard in ALL.values():
            places = {query.place for query in dashboard_queries(dashboard)}
            assert {
                "variable job",
                "variable segment",
                *(f"annotation {name}" for name in linter.ANNOTATIONS),
            } <= places
            assert len(expressions(dashboard)) > 15


class TestProvisioning:
    FOLDER = DASHBOARDS / "grafana" / "provisioning"

    def test_dashboards_are_read_from_a_folder_and_not_changed(self) -> None:
        found = yaml.safe_load(self.FOLDER.joinpath("dashboards", "embedwatch.yaml").read_text())
        (provider,) = found["providers"]
        assert found["apiVersion"] == 1
        assert provider["type"] == "file"
        assert provider["allowUiUpdates"] is False
        assert Path(provider["options"]["path"]).is_absolute()

    def test_the_data_source_scrapes_as_often_as_prometheus_does(self) -> None:
        found = yaml.safe_load(self.FOLDER.joinpath("datasources", "prometheus.yaml").read_text())
        example = yaml.safe_load(DASHBOARDS.joinpath("prometheus", "prometheus.yml").read_text())
        (source,) = found["datasources"]
        assert source["type"] == "prometheus"
        assert source["jsonData"]["timeInterval"] == example["global"]["scrape_interval"]


class TestLayout:
    def test_what_does_not_fit_is_shared_by_lines_that_are_full(self) -> None:
        found = laid_out([row("A"), *(stat(str(number), "", []) for number in range(7)), row("B")])
        assert [panel["gridPos"]["y"] for panel in found] == [0, 1, 1, 1, 1, 5, 5, 5, 9]
        whole, quarters, thirds = [COLUMNS], 4 * [COLUMNS // 4], 3 * [COLUMNS // 3]
        assert [panel["gridPos"]["w"] for panel in found] == whole + quarters + thirds + whole
        assert [panel["gridPos"]["x"] for panel in found] == [0, 0, 6, 12, 18, 0, 8, 16, 0]
        assert [panel["id"] for panel in found] == list(range(1, 10))


Change = Callable[[dict[str, Any]], object]
BREACHES: dict[str, tuple[linter.Rule, Change]] = {
    "editable": (linter.uneditable, lambda d: d.update(editable=True)),
    "no uid": (linter.uneditable, lambda d: d.update(uid="")),
    "fixed data source": (linter.template_datasource, lambda d: d["templating"]["list"].pop(0)),
    "no instance": (linter.template_chain, lambda d: d["templating"]["list"].pop(2)),
    "only one job": (linter.template_chain, lambda d: d["templating"]["list"][1].update(multi=False)),
    "all is empty": (linter.template_chain, lambda d: d["templating"]["list"][1].update(allValue=None)),
    "never refreshed": (linter.template_chain, lambda d: d["templating"]["list"][3].update(refresh=1)),
    "chain broken": (
        linter.template_chain,
        lambda d: d["templating"]["list"][3]["query"].update(query="label_values(embedwatch_window_rows, model)"),
    ),
    "no title": (linter.panel_texts, lambda d: d["panels"][1].update(title="")),
    "title twice": (linter.panel_texts, lambda d: d["panels"][1].update(title=d["panels"][2]["title"])),
    "no description": (linter.panel_texts, lambda d: d["panels"][1].update(description="Something.")),
    "misspelt unit": (linter.panel_units, lambda d: d["panels"][1]["fieldConfig"]["defaults"].update(unit="seconds")),
    "no unit": (linter.panel_units, lambda d: d["panels"][1]["fieldConfig"]["defaults"].pop("unit")),
    "panel with its own source": (linter.panel_datasource, lambda d: d["panels"][1].update(datasource=None)),
    "query with its own source": (
        linter.panel_datasource,
        lambda d: d["panels"][1]["targets"][0].update(datasource={"type": "prometheus", "uid": "x"}),
    ),
    "an annotation is gone": (linter.annotations, lambda d: d["annotations"]["list"].pop()),
    "an annotation asks nothing": (linter.annotations, lambda d: d["annotations"]["list"][1].update(expr="")),
    "no list of dashboards": (linter.links, lambda d: d["links"].clear()),
    "the list forgets the time": (linter.links, lambda d: d["links"][0].update(keepTime=False)),
    "a link into nothing": (linter.links, lambda d: lead(d, "/d/embedwatch-nothing?${__url_time_range}")),
    "a link that forgets": (linter.links, lambda d: lead(d, "/d/embedwatch-norms?${__url_time_range}")),
    "nothing asked": (linter.panel_targets, lambda d: d["panels"][1]["targets"].clear()),
    "letter twice": (linter.panel_targets, lambda d: d["panels"][1]["targets"].append(d["panels"][1]["targets"][0])),
    "one over another": (linter.panel_grid, lambda d: d["panels"][2]["gridPos"].update(x=0)),
    "over the edge": (linter.panel_grid, lambda d: d["panels"][1]["gridPos"].update(w=30)),
    "same number": (linter.panel_grid, lambda d: d["panels"][1].update(id=d["panels"][2]["id"])),
    "bare metric": (linter.target_matchers, lambda d: ask(d, "max(embedwatch_norm_mean)")),
    "no instance in a query": (linter.target_matchers, lambda d: ask(d, 'embedwatch_norm_mean{job=~"$job"}')),
    "job by equality": (
        linter.target_matchers,
        lambda d: ask(d, 'embedwatch_norm_mean{job="$job",instance=~"$instance"}'),
    ),
    "wrong variable": (
        linter.target_matchers,
        lambda d: ask(d, 'embedwatch_norm_mean{job=~"$job",instance=~"$instance",place=~"$model"}'),
    ),
    "fixed range": (linter.target_rates, lambda d: ask(d, "rate(embedwatch_errors_total{}[5m])")),
    "counter as it is": (linter.target_rates, lambda d: ask(d, "sum(embedwatch_errors_total{})")),
    "bucket as it is": (linter.target_rates, lambda d: ask(d, "sum(embedwatch_norm_bucket{})")),
    "rate of a gauge": (linter.target_rates, lambda d: ask(d, "rate(embedwatch_norm_mean{}[$__rate_interval])")),
    "legend without label": (linter.target_legends, lambda d: ask(d, "max by (model) (x{})", "{{place}}")),
    "too many lines": (linter.target_series, lambda d: ask(d, "topk(50, x{})", kind="timeseries")),
    "unbounded lines": (linter.target_series, lambda d: ask(d, "x{}", kind="timeseries")),
}


def ask(dashboard: dict[str, Any], expr: str, legend: str = "", *, kind: str = "stat") -> None:
    panel = next(panel for panel in panels(dashboard) if panel["type"] == kind)
    panel["targets"][0].update(expr=expr, legendFormat=legend)


def lead(dashboard: dict[str, Any], url: str) -> None:
    next(panel for panel in panels(dashboard) if "links" in panel)["links"][0].update(url=url)


@pytest.mark.parametrize("case", BREACHES)
def test_the_rule_bites(case: str) -> None:
    rule, change = BREACHES[case]
    dashboard = copy.deepcopy(OVERVIEW)
    change(dashboard)
    assert rule(dashboard), case


def test_every_dashboard_is_there_and_nothing_else() -> None:
    assert {dashboard["uid"] for dashboard in ALL.values()} == linter.UIDS
    assert all(name == f"{dashboard['uid']}.json" for name, dashboard in ALL.items())
    titles = [dashboard["title"] for dashboard in ALL.values()]
    assert len(set(titles)) == len(titles)


def test_from_the_overview_a_panel_leads_to_every_other_dashboard() -> None:
    urls = [link["url"] for panel in panels(OVERVIEW) for link in panel.get("links", [])]
    assert {url.removeprefix("/d/").partition("?")[0] for url in urls} == linter.UIDS - {OVERVIEW["uid"]}


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _ in BREACHES.values()} == set(linter.RULES)


def test_the_json_has_no_numbers_that_json_has_not() -> None:
    for path in DASHBOARDS.glob("grafana/*.json"):
        json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
