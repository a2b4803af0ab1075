"""The generated tests of the rules bite: each of these changes to a rule is caught by them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedwatch.operations import Alert, all_alerts, trial_file
from embedwatch.operations.check_alerts import alert_name
from tests.dashboards.tools import needs_promtool, promtool

Rule = dict[str, Any]
Mutant = tuple[str, Rule]
ALERTS = {alert.name: alert for alert in all_alerts()}
KINDS = {
    "a verdict that is held": alert_name("collapse"),
    "a limit from below": alert_name("rank_collapse"),
    "a fact": alert_name("nonfinite_rows"),
    "warnings": "EmbedwatchWarning",
    **{name: name for name in ALERTS if "check_fail" not in ALERTS[name].expr},
}
"""One alert of each kind: those on checks are made by the same function."""
FLIPS = ((" > ", " < "), (" > ", " >= "), ("\n<\n", "\n>\n"), ("\n<\n", "\n<=\n"), (" == ", " != "), ("unless", "and"))
OTHER_LIMIT = 1.5

EQUAL = {
    "warnings": {'without severity="warn"'},
    "a fact": {"twice the range"},
    "EmbedwatchReferenceOld": {"> becomes >="},
}
"""Changes that change nothing: what fails is excluded there, so that the warnings are left; what failed longer ago than
the range is too old; an age is at its limit for a moment only."""


def mutants(rule: Rule) -> Iterator[Mutant]:
    """Yield changed rules with what was changed."""
    yield from _changed_times(rule)
    yield from _changed_texts(rule)
    for what, expr in _changed_expressions(rule["expr"]):
        yield what, {**rule, "expr": expr}


def _changed_times(rule: Rule) -> Iterator[Mutant]:
    for key in ("for", "keep_firing_for"):
        if key in rule:
            minutes = int(rule[key].removesuffix("m"))
            yield f"no {key}", {name: value for name, value in rule.items() if name != key}
            yield f"longer {key}", {**rule, key: f"{minutes + 3}m"}
            yield f"shorter {key}", {**rule, key: f"{minutes - 3}m"}


def _changed_texts(rule: Rule) -> Iterator[Mutant]:
    yield "another name", {**rule, "alert": rule["alert"] + "Again"}
    yield "another severity", {**rule, "labels": {"severity": "page"}}
    yield "one label more", {**rule, "labels": {**rule["labels"], "team": "a"}}
    for key in rule["annotations"]:
        changed = copy.deepcopy(rule)
        changed["annotations"][key] += "!"
        yield f"another {key}", changed
    for metric in re.findall(r"last_over_time\((embedwatch_\w+)", rule["annotations"]["description"]):
        changed = copy.deepcopy(rule)
        changed["annotations"]["description"] = changed["annotations"]["description"].replace(metric, metric + "_x")
        yield f"description asks for {metric}_x", changed


def _changed_expressions(expr: str) -> Iterator[tuple[str, str]]:
    for old, new in FLIPS:
        if old in expr and not (new == " >= " and expr.endswith(" > 0")):  # nothing is below 0: the same, but for 0
            yield f"{old.strip()} becomes {new.strip()}", expr.replace(old, new)
    for metric in sorted(set(re.findall(r"\b(?:embedwatch_\w+|up)\b", expr))):
        yield f"{metric} is renamed", expr.replace(metric, f"{metric}_x")
    for matcher in sorted(set(re.findall(r'\w+=~?"[^"]*"', expr))):
        yield f"without {matcher}", expr.replace(matcher, "").replace("{,", "{").replace(",}", "}")
        yield f"other than {matcher}", expr.replace(matcher, re.sub(r'=~?"', '="not_', matcher))
    for labels in sorted(set(re.findall(r"by \(([^)]*)\)", expr))):
        for label in labels.split(", "):
            fewer = ", ".join(other for other in labels.split(", ") if other != label)
            yield f"not by {label}", expr.replace(f"by ({labels})", f"by ({fewer})")
    yield from _changed_ranges(expr)


def _changed_ranges(expr: str) -> Iterator[tuple[str, str]]:
    if "last_over_time" in expr:
        yield "no last_over_time", re.sub(r"last_over_time\((.*?)\[15m\]\)", r"\1", expr)
    for minutes in set(re.findall(r"\[(\d+)m\]", expr)):
        yield "a third of the range", expr.replace(f"[{minutes}m]", f"[{int(minutes) // 3}m]")
        yield "twice the range", expr.replace(f"[{minutes}m]", f"[{2 * int(minutes)}m]")
    for number in re.findall(r"[<>] ([\d.]*[1-9]\d*)$", expr):
        yield "a higher limit", expr.replace(number, str(float(number) * OTHER_LIMIT))
        yield "a lower limit", expr.replace(number, str(float(number) / OTHER_LIMIT))


def caught(alert: Alert, folder: Path) -> dict[str, bool]:
    """Return for each mutant of an alert whether the alert's tests fail on it. One call of promtool for all."""
    tests = trial_file([alert])
    made = [("unchanged", alert.rule()), *mutants(alert.rule())]
    paths = []
    for index, (_, rule) in enumerate(made):
        rules = f"{index}.rules.yml"
        group = {"groups": [{"name": "mutant", "rules": [rule]}]}
        folder.joinpath(rules).write_text(yaml.safe_dump(group, width=1000), encoding="utf-8")
        paths.append(folder / f"{index}.test.yml")
        paths[-1].write_text(yaml.safe_dump({**tests, "rule_files": [rules]}), encoding="utf-8")
    _, said = promtool("test", "rules", *(path.name for path in paths), cwd=folder)
    failed = {part.split()[0] for part in said.split("Unit Testing:")[1:] if "FAILED" in part}
    return {what: path.name in failed for (what, _), path in zip(made, paths, strict=True)}


@needs_promtool
@pytest.mark.parametrize("kind", KINDS)
def test_every_mutant_is_caught(kind: str, tmp_path: Path) -> None:
    found = caught(ALERTS[KINDS[kind]], tmp_path)
    assert found.pop("unchanged") is False
    assert len(found) >= 5
    survivors = {what for what, is_caught in found.items() if not is_caught}
    assert survivors == EQUAL.get(kind, set())
