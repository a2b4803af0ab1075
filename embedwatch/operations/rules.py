"""The rule file: every alert, from every Check that embedwatch ships, and what is recorded; and its tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError
from embedwatch.core.registry import registered
from embedwatch.operations.alerts import Alert
from embedwatch.operations.check_alerts import alert_on_check, alert_on_warnings, can_fail
from embedwatch.operations.own_alerts import own_alerts
from embedwatch.operations.records import RECORDS, record_trials
from embedwatch.operations.trials import trial_file

__all__ = ["RECORDING", "all_alerts", "check_alerts", "rule_file", "rule_tests", "shipped"]

RECORDING = "embedwatch-records"
"""Group of the recording rules."""


def shipped() -> list[type[Check]]:
    """Return the checks that embedwatch itself ships, whatever else is installed here."""
    return [check for check in registered(Check).values() if check.__module__.startswith("embedwatch.")]


def check_alerts(checks: Iterable[type[Check]]) -> list[Alert]:
    """Return the alerts on verdicts: one for each check that can fail, and one for all warnings."""
    return [*(alert_on_check(check) for check in checks if can_fail(check)), alert_on_warnings()]


def all_alerts(checks: Iterable[type[Check]] | None = None) -> list[Alert]:
    """Return every alert: on checks, by default those that embedwatch ships, and on embedwatch itself.

    Raises:
        UsageError: if two have the same name.
    """
    alerts = [*check_alerts(shipped() if checks is None else checks), *own_alerts()]
    names = [alert.name for alert in alerts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"`name` of a check must make an alert of its own, got {', '.join(twice)} twice; rename it")
    return alerts


def rule_file(checks: Sequence[type[Check]] | None = None) -> dict[str, Any]:
    """Return the rule file.

    Args:
        checks: those to alert on; by default those that embedwatch ships. Give your own to alert on plug-ins.

    Raises:
        UsageError: if two alerts have the same name.
    """
    alerts = all_alerts(checks)
    own = {alert.name for alert in own_alerts()}
    groups = {
        "embedwatch-verdicts": [alert.rule() for alert in alerts if alert.name not in own],
        "embedwatch-itself": [alert.rule() for alert in alerts if alert.name in own],
        RECORDING: [record.rule() for record in RECORDS],
    }
    return {"groups": [{"name": name, "rules": rules} for name, rules in groups.items()]}


def rule_tests(checks: Sequence[type[Check]] | None = None) -> dict[str, Any]:
    """Return the unit tests of that rule file, for `promtool test rules`."""
    tests = trial_file(all_alerts(checks))
    return {**tests, "tests": [*tests["tests"], *record_trials()]}
