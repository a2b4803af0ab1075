"""The rules: what they cover, what promtool says of them, and that their tests pass."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
import yaml

from embedwatch.core import Check, Evidence, Limit, Snapshot, ThresholdCheck, UsageError
from embedwatch.core.check import RangeCheck
from embedwatch.core.diagnostic import Diagnostic
from embedwatch.core.registry import registered
from embedwatch.operations import Alert, Trial, all_alerts, rule_file, shipped, trial_file
from embedwatch.operations.alerts import RUNBOOKS
from embedwatch.operations.check_alerts import alert_name, alert_on_check, can_fail
from embedwatch.operations.promql import SELDOM
from embedwatch.operations.trials import actors
from tests.dashboards.tools import PROMETHEUS, committed_rules, needs_promtool, promtool

ALERTS = {alert.name: alert for alert in all_alerts()}
EVERY = [rule for group in committed_rules()["groups"] for rule in group["rules"]]
RULES = [rule for rule in EVERY if "alert" in rule]


class OnlyWarns(Check, register=False):
    """Never fails."""

    name = "only_warns"
    limit = Limit(warn=1)

    def evaluate(self, *arguments: Any) -> Evidence:
        return Evidence(None)


class Relative(Check, register=False):
    """Its limit depends on what was before."""

    name = "relative_check"
    title = "something relative"
    meaning = "Things are not as they were. This sentence is not part of the summary."
    impact = "It costs something."
    mitigation = "Look."

    def evaluate(self, *arguments: Any) -> Evidence:
        return Evidence(None)


class Counted(ThresholdCheck, register=False):
    """Nothing bad is counted."""

    name = "counted_check"
    title = "bad things"
    metric = "bad_things_total"
    limit = Limit(fail=1)
    severity = "critical"
    meaning = "Bad things."
    impact = "It costs something."
    mitigation = "Look."


class BothSides(RangeCheck, register=False):
    """Neither too large nor too small, and judged by its square."""

    name = "both_sides"
    title = "size"
    metric = "size"
    limit = Limit(warn=2)
    floor = Limit(warn=0.5, fail=0.1, side="below")
    meaning = "Too large or too small."
    impact = "It costs something."
    mitigation = "Look."

    def value(self, snapshot: Snapshot, number: float) -> float:
        return number**2


class TestWhatTheyCover:
    def test_every_check_that_can_fail_has_its_alert(self) -> None:
        expected = {alert_name(check.name) for check in shipped() if can_fail(check)}
        assert len(expected) >= 8
        assert expected <= set(ALERTS)

    def test_a_check_that_only_warns_has_none(self) -> None:
        assert not can_fail(OnlyWarns)
        assert can_fail(Relative)
        assert can_fail(BothSides)
        assert "OnlyWarns" not in str(rule_file([OnlyWarns]))

    def test_embedwatch_itself_is_watched(self) -> None:
        own = "Down Stale Blind Errors Overhead CollectorFailed LabelOverflow SeriesDropped Watchdog Warning"
        assert {f"Embedwatch{name}" for name in own.split()} <= set(ALERTS)

    def test_what_is_examined_seldom_is_not_stale(self) -> None:
        """Places of diagnostics that a Monitor asks at checkpoints; an index is looked at again and again."""
        places = {cls.place for cls in registered(Diagnostic).values() if getattr(cls, "place", None)}
        told_otherwise = {"index"}
        assert places - told_otherwise <= set(SELDOM)
        assert set(SELDOM) - places == {"token_table"}

    def test_names_are_unique(self) -> None:
        assert max(Counter(rule["alert"] for rule in RULES).values()) == 1

    def test_only_these_wake_anybody(self) -> None:
        critical = {name for name, alert in ALERTS.items() if alert.severity == "critical"}
        assert {"EmbedwatchCollapse", "EmbedwatchNonfiniteRows", "EmbedwatchDown"} <= critical
        checks = {alert_name(check.name) for check in shipped() if check.severity == "critical"}
        assert critical == checks | {"EmbedwatchDown"}

    def test_every_check_says_how_urgent_it_is(self) -> None:
        assert {check.severity for check in shipped()} <= {"warning", "critical"}

    def test_own_checks_can_be_alerted_on(self) -> None:
        rules = rule_file([Relative])["groups"][0]["rules"]
        assert [rule["alert"] for rule in rules] == ["EmbedwatchRelativeCheck", "EmbedwatchWarning"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
class TestEveryRule:
    def test_says_what_to_do(self, rule: dict[str, Any]) -> None:
        texts = rule["annotations"]
        assert set(texts) == {"summary", "description", "remedy", "runbook_url"}
        assert all(texts.values())
        assert texts["runbook_url"] == f"{RUNBOOKS}/{rule['alert']}.md"

    def test_has_a_summary_that_is_one_static_sentence(self, rule: dict[str, Any]) -> None:
        summary = rule["annotations"]["summary"]
        assert re.fullmatch(r"[A-Z].*[^.]\.", summary), summary
        assert "{{" not in summary
        assert ". " not in summary

    def test_has_a_description_that_says_which(self, rule: dict[str, Any]) -> None:
        if rule["alert"] != "EmbedwatchWatchdog":
            assert "{{ $labels." in rule["annotations"]["description"]

    def test_is_held_unless_it_looks_back(self, rule: dict[str, Any]) -> None:
        looks_back = "increase(" in rule["expr"] or "check_failed_timestamp_seconds" in rule["expr"]
        assert ("for" in rule) != (looks_back or rule["alert"] == "EmbedwatchWatchdog")

    def test_looks_past_missing_data(self, rule: dict[str, Any]) -> None:
        """A series that ends must not resolve an alert; clocks and scrapes are about just that."""
        if rule["alert"] not in ("EmbedwatchDown", "EmbedwatchStale", "EmbedwatchWatchdog"):
            assert re.search(r"(last_over_time|increase)\(", rule["expr"])


class TestAlertsOnChecks:
    def test_a_fact_fires_at_once_and_is_remembered(self) -> None:
        alert = alert_on_check(Counted)
        assert (alert.hold, alert.keep, alert.severity) == (0, 0, "critical")
        assert "check_failed_timestamp_seconds" in alert.expr

    def test_what_is_asked_once_is_remembered_too(self) -> None:
        alert = ALERTS["EmbedwatchInitialLoss"]
        assert (alert.hold, alert.keep) == (0, 0)
        assert "check_failed_timestamp_seconds" in alert.expr

    def test_a_limit_is_shown_beside_a_value_only(self) -> None:
        assert "embedwatch_threshold" not in alert_on_check(Counted).description
        assert "embedwatch_threshold" in ALERTS["EmbedwatchCollapse"].description

    def test_a_counter_is_not_shown_as_the_value_of_a_window(self) -> None:
        assert "bad_things_total" not in alert_on_check(Counted).description

    def test_a_number_that_was_worked_on_is_not_shown_as_it_was_before(self) -> None:
        assert "embedwatch_size" not in alert_on_check(BothSides).description

    def test_a_relative_check_is_held(self) -> None:
        alert = alert_on_check(Relative)
        assert alert.hold == 10
        assert alert.summary == "Things are not as they were."

    @pytest.mark.parametrize(("severity", "summary"), [("urgent", "A sentence."), ("info", "no sentence")])
    def test_nonsense_is_refused(self, severity: str, summary: str) -> None:
        with pytest.raises(UsageError, match=r"`(severity|summary)` of X must"):
            Alert("X", "vector(1)", severity, summary, "", "", Trial((), {}, ""))


@needs_promtool
class TestPromtool:
    def test_rules_are_clean(self) -> None:
        code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "embedwatch.rules.yml")
        assert code == 0, said
        assert f"{len(EVERY)} rules found" in said

    def test_the_example_configuration_is_valid_and_bounded(self) -> None:
        code, said = promtool("check", "config", PROMETHEUS / "prometheus.yml")
        assert code == 0, said
        scrape = yaml.safe_load(PROMETHEUS.joinpath("prometheus.yml").read_text())["scrape_configs"][0]
        assert scrape["job_name"].startswith("embedwatch")
        assert min(scrape[name] for name in ("sample_limit", "label_limit", "label_value_length_limit")) > 0

    @pytest.mark.slow
    def test_the_tests_of_the_rules_pass(self) -> None:
        code, said = promtool("test", "rules", PROMETHEUS / "embedwatch.rules.test.yml")
        assert code == 0, said

    def test_alerts_on_other_checks_pass_theirs(self, tmp_path: Any) -> None:
        alerts = [alert_on_check(check) for check in (Relative, Counted, BothSides)]
        rules = {"groups": [{"name": "others", "rules": [alert.rule() for alert in alerts]}]}
        tmp_path.joinpath("embedwatch.rules.yml").write_text(yaml.safe_dump(rules))
        tmp_path.joinpath("test.yml").write_text(yaml.safe_dump(trial_file(alerts)))
        code, said = promtool("test", "rules", "test.yml", cwd=tmp_path)
        assert code == 0, said


class TestTrials:
    @pytest.mark.parametrize("name", ALERTS)
    def test_every_alert_is_seen_silent_firing_and_resolved(self, name: str) -> None:
        test = next(test for test in trial_file(list(ALERTS.values()))["tests"] if test["name"] == name)
        firing = [len(expected["exp_alerts"]) for expected in test["alert_rule_test"]]
        if name == "EmbedwatchWatchdog":
            assert set(firing) == {1}
            return
        assert firing[0] == 0
        assert firing[-1] == 0
        assert max(firing) >= 1
        assert firing.index(max(firing)) >= 2 or not ALERTS[name].hold  # just before and at the end of `for`

    @pytest.mark.parametrize("name", [name for name, alert in ALERTS.items() if alert.trial.signals])
    def test_somebody_healthy_plays_in_every_test(self, name: str) -> None:
        cast = {actor.name for actor in actors(ALERTS[name])}
        assert {"faulty", "healthy"} <= cast
        assert ("brief" in cast) == bool(ALERTS[name].hold)
        assert ("gone" in cast) == bool(ALERTS[name].bridge)

    def test_a_dying_process_is_handed_over(self) -> None:
        names = [test["name"] for test in trial_file(list(ALERTS.values()))["tests"]]
        assert any(name.endswith("hands over to EmbedwatchDown") for name in names)
