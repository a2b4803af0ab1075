"""The mixin: what jsonnet makes of it, as it is and with another configuration."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from embedwatch.operations import boards, dashboard_queries
from embedwatch.operations.mixin import GAPS, mixin_data
from embedwatch.operations.own_alerts import OVERHEAD, SECONDS, STALE_AFTER
from embedwatch.operations.queries import Query
from embedwatch.operations.scope import Scope
from tests.dashboards.linter import selectors
from tests.dashboards.tools import DASHBOARDS, committed_dashboards, committed_rules, needs_promtool, promtool

FOLDER = DASHBOARDS / "mixin"
JSONNET = shutil.which("jsonnet")
needs_jsonnet = pytest.mark.skipif(JSONNET is None, reason="jsonnet is not installed (Debian: jsonnet)")
PARTS = ("prometheusAlerts", "prometheusRules", "grafanaDashboards")
SELECTOR = 'cluster="a%b",team=~"x|y"'


def jsonnet(code: str, *, text: bool = False) -> str:
    """Run jsonnet in the folder of the mixin; return what it prints."""
    assert JSONNET is not None
    command = [JSONNET, *(["-S"] if text else []), "-e", code]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@lru_cache
def mixin(config: str = "") -> dict[str, Any]:
    """Return all parts of the mixin with something changed in `_config`."""
    changed = f"((import 'mixin.libsonnet') + {{ _config+:: {{ {config} }} }})"
    parts = ", ".join(f"{part}: {changed}.{part}" for part in PARTS)
    made: dict[str, Any] = json.loads(jsonnet(f"{{ {parts} }}"))
    return made


def alerts(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for group in made["prometheusAlerts"]["groups"] for rule in group["rules"]}


def changed_by(config: str) -> set[str]:
    """Return the names of the alerts that a change of the configuration changes."""
    before, after = alerts(mixin()), alerts(mixin(config))
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


@needs_jsonnet
class TestAsItIs:
    def test_it_is_what_is_shipped_as_yaml(self) -> None:
        made = mixin()
        groups = made["prometheusAlerts"]["groups"] + made["prometheusRules"]["groups"]
        assert {"groups": groups} == committed_rules()

    def test_dashboards_are_those_that_are_shipped(self) -> None:
        assert mixin()["grafanaDashboards"] == committed_dashboards()

    def test_defaults_are_the_constants_of_the_rules(self) -> None:
        config = json.loads(jsonnet("(import 'mixin.libsonnet')._config"))
        assert config["staleSeconds"] == STALE_AFTER * SECONDS
        assert config["overheadRatio"] == OVERHEAD
        assert config["embedwatchJob"] == Scope().job
        assert config["runbookURL"] == Scope().runbooks

    def test_it_can_be_written_as_yaml(self) -> None:
        text = jsonnet("std.manifestYamlDoc((import 'mixin.libsonnet').prometheusRules)", text=True)
        assert "record" in text


@needs_jsonnet
class TestConfig:
    @needs_promtool
    def test_rules_of_another_scope_are_clean(self, tmp_path: Path) -> None:
        config = f"embedwatchSelector: {json.dumps(SELECTOR)}, embedwatchJob: 'a\\\\.b', runbookURL: 'https://w'"
        made = mixin(config)
        for part in PARTS[:2]:
            path = tmp_path / f"{part}.yml"
            path.write_text(json.dumps(made[part]))  # JSON is YAML
            code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", path)
            assert code == 0, said

    def test_it_does_what_the_command_does(self) -> None:
        made = mixin(f"embedwatchSelector: {json.dumps(SELECTOR)}, embedwatchJob: 'a\\\\.b', runbookURL: 'https://w'")
        scope = Scope(selector=SELECTOR, job=r"a\.b", runbooks="https://w")
        groups = made["prometheusAlerts"]["groups"] + made["prometheusRules"]["groups"]
        assert {"groups": groups} == scope.applied(committed_rules())
        assert made["grafanaDashboards"] == {name: scope.dashboard(board) for name, board in boards().items()}

    def test_the_selector_is_in_every_expression(self) -> None:
        made = mixin(f"embedwatchSelector: {json.dumps(SELECTOR)}")
        rules = [rule for part in PARTS[:2] for group in made[part]["groups"] for rule in group["rules"]]
        queries = [Query(rule.get("alert", rule.get("record")), rule["expr"]) for rule in rules]
        queries += [query for dashboard in made["grafanaDashboards"].values() for query in dashboard_queries(dashboard)]
        for query in queries:
            found = [each for each in selectors(query.expr) if each.metric != "ALERTS"]
            assert found or query.place in ("EmbedwatchWatchdog", "annotation Alerts", "Firing alerts")
            assert query.expr.count(SELECTOR) == len(found), query

    @pytest.mark.parametrize(
        ("config", "name", "words"),
        [
            ("staleSeconds: 5400", "EmbedwatchStale", ("> 5400", "than 90 minutes")),
            ("overheadRatio: 0.025", "EmbedwatchOverhead", ("> 0.025", "than 2.5%")),
            ("embedwatchJob: 'x'", "EmbedwatchDown", ('job=~"x"',)),
            ("hold: { EmbedwatchDown: '9m' }", "EmbedwatchDown", ("'9m'",)),
            ("severity: { EmbedwatchBlind: 'critical' }", "EmbedwatchBlind", ("'critical'",)),
        ],
    )
    def test_a_number_changes_its_alert_and_no_other(self, config: str, name: str, words: tuple[str, ...]) -> None:
        assert changed_by(config) == {name}
        rule = str(alerts(mixin(config))[name])
        assert all(word in rule for word in words)

    def test_runbooks_can_be_elsewhere(self) -> None:
        assert changed_by("runbookURL: 'https://w'") == set(alerts(mixin()))

    def test_alerts_can_be_left_out(self) -> None:
        left = alerts(mixin("without: ['EmbedwatchDown', 'EmbedwatchCollapse']"))
        assert set(alerts(mixin())) - set(left) == {"EmbedwatchDown", "EmbedwatchCollapse"}

    def test_dashboards_can_have_tags(self) -> None:
        for dashboard in mixin("dashboardTags: ['ours']")["grafanaDashboards"].values():
            assert dashboard["tags"] == ["embedwatch", "ours"]

    def test_groups_of_others_are_kept(self) -> None:
        code = "({ prometheusAlerts+:: { groups+: [{ name: 'theirs', rules: [] }] } } + (import 'mixin.libsonnet'))"
        names = json.loads(jsonnet(f"[group.name for group in {code}.prometheusAlerts.groups]"))
        assert names == ["theirs", "embedwatch-verdicts", "embedwatch-itself"]


class TestData:
    def test_every_gap_is_filled_by_the_mixin(self) -> None:
        text = json.dumps(mixin_data())
        used = set(re.findall(r'\{"gap": "(\w+)"\}', text))
        filled = FOLDER.joinpath("mixin.libsonnet").read_text(encoding="utf-8")
        assert used == set(GAPS.values())
        assert all(re.search(rf"\b{gap}: ", filled) for gap in used)

    def test_nothing_that_stands_for_something_is_left(self) -> None:
        text = json.dumps(mixin_data())
        assert "<<" not in text
        assert "gap=" not in text
