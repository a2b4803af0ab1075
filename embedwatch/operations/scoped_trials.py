"""The unit tests of rules within a scope: the same trials, played by the jobs and labels that the rules look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.operations.promql import IDENTITY, select
from embedwatch.operations.scope import Scope, matchers
from embedwatch.operations.trials import JOB

__all__ = ["scoped_trials"]

SERIES = re.compile(r"([^{]+)(?:\{(.*)\})?", re.DOTALL)
WILD = re.compile(r"\.[*+]")
"""What in the pattern of a job stands for anything: left out, or filled in by some letter."""


def scoped_trials(tests: Mapping[str, Any], scope: Scope, rules: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """Return a test file whose series are within a scope.

    Args:
        tests: the test file of the rules as they are shipped.
        scope: within which the tested rules are.
        rules: those rules.
        path: of their file, as seen from the folder of the test file.

    Raises:
        UsageError: if no label value, or no job, can be told that fits.
    """
    player = _Player(scope, rules)
    return {**tests, "rule_files": [path], "tests": [player.test(test) for test in tests["tests"]]}


class _Player:
    def __init__(self, scope: Scope, rules: Mapping[str, Any]) -> None:
        self._scope, self._job, self._labels = scope, _job(scope.job), _labels(scope.selector)
        found = [rule for group in rules["groups"] for rule in group["rules"]]
        self._whole = {rule["alert"] for rule in found if "alert" in rule and _keeps_labels(rule["expr"])}

    def test(self, test: Mapping[str, Any]) -> dict[str, Any]:
        """Return one test within the scope."""
        changed = {**test, "input_series": list(self._series(test["input_series"]))}
        if "alert_rule_test" in test:
            changed["alert_rule_test"] = [self._alert(each) for each in test["alert_rule_test"]]
        if "promql_expr_test" in test:
            changed["promql_expr_test"] = [self._expr(each) for each in test["promql_expr_test"]]
        return changed

    def _series(self, lines: list[dict[str, str]]) -> Iterator[dict[str, str]]:
        for line in lines:
            metric, labels = _parsed(line["series"])
            other = labels.get("job", JOB)
            if other != JOB and re.fullmatch(self._scope.job, other):
                continue  # somebody else's job, which must not matter, is one of ours here
            job = self._job if other == JOB else other
            yield {**line, "series": select(metric, {**labels, "job": job, **self._labels})}

    def _alert(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        more = self._labels if expected["alertname"] in self._whole else {}
        firing = [self._firing(each, expected["alertname"], more) for each in expected["exp_alerts"]]
        return {**expected, "exp_alerts": firing}

    def _firing(self, alert: Mapping[str, Any], name: str, more: Mapping[str, str]) -> dict[str, Any]:
        labels = {**alert["exp_labels"], **more}
        if "job" in labels:
            labels["job"] = self._job
        texts = {**alert["exp_annotations"], "runbook_url": self._scope.runbook(name)}
        texts["description"] = texts["description"].replace(f"of job {JOB} ", f"of job {self._job} ")
        return {"exp_labels": labels, "exp_annotations": texts}

    def _expr(self, expected: Mapping[str, Any]) -> dict[str, Any]:
        samples = []
        for sample in expected["exp_samples"]:
            metric, labels = _parsed(sample["labels"])
            samples.append({**sample, "labels": select(metric, {**labels, "job": self._job})})
        return {**expected, "exp_samples": samples}


def _parsed(series: str) -> tuple[str, dict[str, str]]:
    match = SERIES.fullmatch(series)
    if match is None:
        raise UsageError(f"`series` must be a metric with labels, got {series!r}; correct the trial")
    return match[1], {name: value for name, (_, value) in matchers(match[2] or "").items()}


def _keeps_labels(expr: str) -> bool:
    """Return whether an alert has every label of the series that it comes from."""
    return " by (" not in expr and "{" in expr


def _job(pattern: str) -> str:
    """Return the name of a job that fits a pattern."""
    for name in (JOB, pattern, *(WILD.sub(filled, pattern.split("|")[0]) for filled in ("", "x"))):
        if name and re.fullmatch(pattern, name):
            return name
    raise UsageError(f"`job` must be a pattern for which a name is easily told, got {pattern!r}; write it more simply")


def _labels(selector: str) -> dict[str, str]:
    found = matchers(selector)
    for name, (operator, _) in found.items():
        if operator != "=" or name in IDENTITY:
            raise UsageError(
                f"`selector` of tests must match labels of targets by `=`, got {selector!r}; "
                "leave the selector out for tests, or name a job by its own option"
            )
    return {name: value for name, (_, value) in found.items()}
