"""The runbooks: one page for each alert and none besides, and what they show exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from embedwatch.cli import main
from embedwatch.core import Check, Evidence, Limit
from embedwatch.exposition import catalogue
from embedwatch.operations import all_alerts, shipped
from embedwatch.operations.alerts import RUNBOOKS
from embedwatch.operations.check_alerts import alert_name, can_fail
from embedwatch.operations.guides import GUIDES
from embedwatch.operations.runbooks import HEADS, INDEX, runbooks
from tests.dashboards.linter import names
from tests.dashboards.tools import ROOT, committed_rules, needs_promtool, parse_errors

FOLDER = ROOT / "docs" / "runbooks"
ALERTS = {alert.name: alert for alert in all_alerts()}
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("Embedwatch*.md")}
FOREIGN = {"up", "ALERTS", "scrape_duration_seconds"}
"""Metrics that Prometheus itself makes."""


class Another(Check, register=False):
    """A check of another package."""

    name = "another_check"
    title = "something else"
    reads = ("a_number_of_theirs",)
    limit = Limit(warn=1, fail=2)
    meaning = "It is otherwise. And more."
    impact = "It costs something."
    diagnosis = "Look here."
    mitigation = "Mend it."

    def evaluate(self, *arguments: Any) -> Evidence:
        return Evidence(None)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", page, re.DOTALL | re.MULTILINE)


def section(page: str, head: str) -> str:
    return page.split(f"\n## {head}\n")[1].split("\n## ")[0]


def test_alerts_and_pages_are_the_same() -> None:
    rules = {rule["alert"] for group in committed_rules()["groups"] for rule in group["rules"] if "alert" in rule}
    assert set(PAGES) == set(ALERTS) == rules


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {INDEX, *(f"{name}.md" for name in ALERTS)}


def test_what_is_written_by_hand_belongs_to_an_alert() -> None:
    checks = {alert_name(check.name) for check in shipped() if can_fail(check)}
    assert set(GUIDES) == set(ALERTS) - checks


@pytest.mark.parametrize("name", runbooks())
def test_the_page_is_fresh(name: str) -> None:
    assert FOLDER.joinpath(name).read_text(encoding="utf-8").split("\n\n", 1)[1] == runbooks()[name], "make generate"


def test_the_index_leads_to_every_page() -> None:
    links = re.findall(r"\]\((\w+\.md)\)", FOLDER.joinpath(INDEX).read_text(encoding="utf-8"))
    assert links == [f"{name}.md" for name in ALERTS]


def test_the_link_of_an_alert_ends_at_its_page() -> None:
    for name, alert in ALERTS.items():
        assert FOLDER.joinpath(alert.runbook.removeprefix(f"{RUNBOOKS}/")) == FOLDER / f"{name}.md"


@pytest.mark.parametrize("name", PAGES)
class TestEveryPage:
    def test_has_the_heads_that_people_look_for(self, name: str) -> None:
        page = PAGES[name]
        assert re.findall(r"^# (.+)$", page, re.MULTILINE) == [name]
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(HEADS)
        for head in HEADS:
            assert len(section(page, head).split()) >= 4, head

    def test_says_what_the_alert_says(self, name: str) -> None:
        text = " ".join(PAGES[name].split())
        assert ALERTS[name].summary in text
        assert f"**Severity:** {ALERTS[name].severity}" in text
        assert f"alertname={name} " in text

    def test_asks_about_metrics_that_exist(self, name: str) -> None:
        known = {series for family in catalogue().values() for series in family.series} | FOREIGN
        queries = blocks(PAGES[name], "promql")
        assert queries
        for query in queries:
            assert set(names(query)) <= known, query

    def test_shows_commands_that_exist(self, name: str) -> None:
        commands = [line for line in blocks(PAGES[name], "sh") if line.startswith("embedwatch ")]
        assert commands
        for line in commands:
            _, command, *arguments = shlex.split(line)
            known = main.commands[command]
            known.make_context(command, arguments, parent=click.Context(main))  # raises for what is no option of it

    def test_is_as_wide_as_other_pages(self, name: str) -> None:
        prose = re.sub(r"^```.*?^```$", "", PAGES[name], flags=re.DOTALL | re.MULTILINE)
        assert max(map(len, prose.splitlines())) <= 120


@needs_promtool
def test_every_query_can_be_parsed(tmp_path: Path) -> None:
    queries = [query for page in PAGES.values() for query in blocks(page, "promql")]
    assert len(queries) > 2 * len(PAGES)
    assert parse_errors(queries, tmp_path) == ""


class TestChecks:
    @pytest.mark.parametrize("check", [check for check in shipped() if can_fail(check)], ids=lambda check: check.name)
    def test_texts_limits_and_numbers_are_those_of_the_check(self, check: type[Check]) -> None:
        page = PAGES[alert_name(check.name)]
        texts = {head: " ".join(section(page, head).split()) for head in HEADS}
        for head, said in zip(HEADS, (check.meaning, check.impact, check.diagnosis, check.mitigation), strict=False):
            assert " ".join(said.split()) in texts[head]
        for limit in filter(None, (check.limit, check.floor)):
            assert f"{limit.fail:g}" in texts["Meaning"] or limit.fail is None
        assert all(f"`{name}`" in texts["Diagnosis"] for name in check.reads)
        assert f'skip=["{check.name}"]' in texts["How to silence"]

    def test_those_of_other_packages_have_theirs(self) -> None:
        page = runbooks([Another])["EmbedwatchAnotherCheck.md"]
        assert "Limits: warn ≥ 1, fail ≥ 2." in page
        assert "embedwatch_a_number_of_theirs" in page
        assert set(runbooks([Another])) == {INDEX, "EmbedwatchAnotherCheck.md", *(f"{name}.md" for name in GUIDES)}
