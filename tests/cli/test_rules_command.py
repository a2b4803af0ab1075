"""`embedwatch rules`: promtool accepts what it prints, within any scope, and the tests it prints pass on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from embedwatch import __version__
from embedwatch.cli import main
from embedwatch.core import Check, Evidence, Limit, UsageError, registry
from embedwatch.operations import rule_file
from embedwatch.operations.records import RECORDS
from embedwatch.operations.rules import RECORDING, all_alerts
from embedwatch.operations.scope import Scope
from tests.dashboards.linter import selectors
from tests.dashboards.tools import DASHBOARDS, committed_rules, needs_promtool, promtool

CONSTANT = {"EmbedwatchWatchdog"}
"""It looks at no series."""


class Theirs(Check, register=False):
    """A check of another package."""

    name = "their_check"
    title = "something of theirs"
    reads = ("their_number",)
    limit = Limit(warn=1, fail=2)
    meaning = "Their number is too large."
    impact = "It costs something."
    diagnosis = "Look."
    mitigation = "Mend it."

    def evaluate(self, *arguments: Any) -> Evidence:
        return Evidence(None)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)])


def made(*arguments: str) -> dict[str, Any]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = yaml.safe_load(result.stdout)
    return data


def test_for_machines_the_same_rules_are_json(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    result = run("--json", "--out", file)
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text()) == made()
    tests = run("--json", "--tests").stdout
    assert json.loads(tests) == made("--tests")


def rules_of(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in data["groups"]:
        yield from group["rules"]


def queries_in(rule: dict[str, Any]) -> list[str]:
    """Return the expression of a rule, and the queries in its description."""
    return [rule["expr"], *re.findall(r"`([^`]*)`", rule.get("annotations", {}).get("description", ""))]


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.registered(Check)
    monkeypatch.setitem(registry._classes["check"], Theirs.name, Theirs)


class TestWhatIsPrinted:
    def test_it_is_the_shipped_file_where_nothing_is_asked(self) -> None:
        result = run()
        assert yaml.safe_load(result.stdout) == committed_rules() == rule_file()
        assert result.stdout.startswith(f"# Made by `embedwatch rules` of embedwatch {__version__}.\n")

    @pytest.mark.usefixtures("theirs")
    def test_checks_of_other_packages_have_their_alert(self) -> None:
        names = [rule.get("alert") for rule in rules_of(made())]
        assert "EmbedwatchTheirCheck" in names
        assert "EmbedwatchTheirCheck" in [test["name"] for test in made("--tests")["tests"]]
        assert "EmbedwatchTheirCheck" not in str(committed_rules())

    @pytest.mark.parametrize(
        ("url", "link"),
        [
            ("https://wiki/x", "https://wiki/x/EmbedwatchDown.md"),
            ("https://wiki/x/", "https://wiki/x/EmbedwatchDown.md"),
            ("https://wiki/?page={alert}&a=b", "https://wiki/?page=EmbedwatchDown&a=b"),
        ],
    )
    def test_runbooks_are_where_they_are_served(self, url: str, link: str) -> None:
        links = {rule["annotations"]["runbook_url"] for rule in rules_of(made("--runbooks", url)) if "alert" in rule}
        assert link in links
        assert "example.com" not in str(links)
        assert len(links) == len(all_alerts())

    def test_jobs_are_those_that_are_named(self) -> None:
        found = {rule.get("alert"): rule["expr"] for rule in rules_of(made("--job", r"ml\.prod|x"))}
        assert found["EmbedwatchDown"] == r'up{job=~"ml\\.prod|x"} == 0'

    def test_every_selector_has_the_matchers(self) -> None:
        matcher = 'team="a%b",zone!~"x|y"'
        for rule in rules_of(made("--selector", matcher)):
            if rule.get("alert") in CONSTANT:
                continue
            for query in queries_in(rule):
                found = selectors(query)
                assert found, query
                assert query.count('zone!~"x|y"') == len(found), query
        assert "team" not in str(made())

    def test_a_query_inside_a_text_is_formatted_by_go(self) -> None:
        rules = {rule.get("alert"): rule for rule in rules_of(made("--selector", 'team="a%b"'))}
        rule = rules["EmbedwatchCollapse"]
        assert 'team="a%b"' in rule["expr"]
        assert 'team="a%%b"' in rule["annotations"]["description"]


@needs_promtool
class TestPromtool:
    @pytest.mark.usefixtures("theirs")
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "scope",
        [
            [],
            pytest.param(
                ["--job", "training-.*", "--selector", 'cluster="a b",team="ml"', "--runbooks", "https://w/{alert}"],
                marks=pytest.mark.slow,
            ),
            pytest.param(["--job", ".*"], marks=pytest.mark.slow),
        ],
        ids=["as it is", "another scope", "every job"],
    )
    def test_rules_are_clean_and_pass_their_tests(self, scope: list[str], tmp_path: Path) -> None:
        assert run(*scope, "--out", tmp_path / "mine.yml").exit_code == 0
        assert run(*scope, "--tests", "--out", tmp_path / "mine.test.yml").exit_code == 0
        code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", tmp_path / "mine.yml")
        assert code == 0, said
        code, said = promtool("test", "rules", "mine.test.yml", cwd=tmp_path)
        assert code == 0, said

    @pytest.mark.slow
    def test_the_tests_bite(self, tmp_path: Path) -> None:
        """Rules of another scope than the tests fail them."""
        run("--selector", 'team="ml"', "--out", tmp_path / "mine.yml")
        run("--tests", "--out", tmp_path / "mine.test.yml")
        assert promtool("test", "rules", "mine.test.yml", cwd=tmp_path)[0] != 0

    @pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
    def test_the_tests_of_each_recording_rule_bite(self, record: Any, tmp_path: Path) -> None:
        rules, tests = rule_file(), made("--tests")
        (group,) = [group for group in rules["groups"] if group["name"] == RECORDING]
        (test,) = [test for test in tests["tests"] if test["name"] == "recording rules"]
        expressions = {
            "as it is": record.expr,
            "min": re.sub(r"^(max|sum)", "min", record.expr),
            "swapped": record.expr.translate(str.maketrans("-/", "/-")),
            "other": record.expr.replace('"fail"', '"warn"').replace("unknown", "failing").replace("seen", "expected"),
            "no model": record.expr.replace(", model)", ")"),
        }
        for what, expr in expressions.items():
            alone = what == "min" and "places" in record.name  # there is one Monitor: any aggregation is the same
            if alone or (what != "as it is" and expr == record.expr):
                continue
            changed = [{**rule, "expr": expr} if rule["record"] == record.name else rule for rule in group["rules"]]
            tmp_path.joinpath("r.yml").write_text(yaml.safe_dump({"groups": [{"name": "r", "rules": changed}]}))
            tmp_path.joinpath("t.yml").write_text(yaml.safe_dump({**tests, "rule_files": ["r.yml"], "tests": [test]}))
            code, said = promtool("test", "rules", "t.yml", cwd=tmp_path)
            assert (code == 0) == (what == "as it is"), f"{what}: {said}"


class TestFile:
    def test_it_is_written_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "rules.yml"
        path.write_text("old")
        result = run("--out", path)
        assert (result.exit_code, result.stdout) == (0, "")
        assert yaml.safe_load(path.read_text(encoding="utf-8")) == rule_file()
        assert [each.name for each in tmp_path.iterdir()] == ["rules.yml"]

    def test_what_cannot_be_written_leaves_what_was_there(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "inside").touch()
        result = run("--out", tmp_path / "folder")
        assert result.exit_code == 2
        assert [each.name for each in tmp_path.iterdir()] == ["folder"]
        assert run("--out", tmp_path / "nowhere" / "rules.yml").exit_code == 2

    @pytest.mark.parametrize(("name", "rules"), [("mine.test.yml", "mine.yml"), ("other.yml", "embedwatch.rules.yml")])
    def test_tests_name_the_file_of_the_rules(self, tmp_path: Path, name: str, rules: str) -> None:
        run("--tests", "--out", tmp_path / name)
        assert yaml.safe_load((tmp_path / name).read_text(encoding="utf-8"))["rule_files"] == [rules]


class TestMisuse:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--selector", "team=ml"], "`selector` must be matchers"),
            (["--selector", '{team="ml"}'], "without braces"),
            (["--selector", "team=`ml`"], "`selector` must be matchers"),
            (["--job", "("], "`job` must be a regular expression"),
            (["--tests", "--job", "[a-c]+x{3}"], "`job` must be a pattern"),
            (["--tests", "--selector", 'team=~"a|b"'], "`selector` of tests"),
            (["--tests", "--selector", 'model="a"'], "`selector` of tests"),
        ],
    )
    def test_what_does_not_fit_is_said_in_one_line(self, arguments: list[str], said: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1

    def test_two_alerts_of_one_name_are_refused(self) -> None:
        class Down(Theirs, register=False):
            """Its alert would have the name of one of ours."""

            name = "down"

        with pytest.raises(UsageError, match="EmbedwatchDown twice"):
            rule_file([Down])

    def test_an_odd_severity_is_said_not_guessed(self) -> None:
        class Urgent(Theirs, register=False):
            """Its severity is none."""

            severity = "urgent"

        with pytest.raises(UsageError, match="`severity` of EmbedwatchTheirCheck"):
            rule_file([Urgent])


def test_a_name_inside_a_text_is_no_metric() -> None:
    scope = Scope(job="embedwatch_prod.*", selector='a="up"')
    assert scope.expression('up{job=~"embedwatch.*"} == 0') == 'up{job=~"embedwatch_prod.*",a="up"} == 0'
    assert scope.expression("embedwatch_x{}") == 'embedwatch_x{a="up"}'


def test_the_readme_says_what_is_recorded() -> None:
    text = DASHBOARDS.joinpath("README.md").read_text(encoding="utf-8")
    for record in RECORDS:
        assert f"| `{record.name}` | {record.help} |" in text
