"""The rule file: every alert, from every Check that embedwatch ships."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.operations.alerts import Alert
from embedwatch.operations.check_alerts import alert_on_check, alert_on_warnings, can_fail
from embedwatch.operations.own_alerts import own_alerts

__all__ = ["all_alerts", "check_alerts", "rule_file", "shipped"]


def shipped() -> list[type[Check]]:
    """Return the checks that embedwatch itself ships, whatever else is installed here."""
    return [check for check in registered(Check).values() if check.__module__.startswith("embedwatch.")]


def check_alerts(checks: Iterable[type[Check]]) -> list[Alert]:
    """Return the alerts on verdicts: one for each check that can fail, and one for all warnings."""
    return [*(alert_on_check(check) for check in checks if can_fail(check)), alert_on_warnings()]


def all_alerts() -> list[Alert]:
    """Return every alert of the shipped rule file."""
    return [*check_alerts(shipped()), *own_alerts()]


def rule_file(checks: Sequence[type[Check]] | None = None) -> dict[str, Any]:
    """Return the rule file.

    Args:
        checks: those to alert on; by default those that embedwatch ships. Give your own to alert on plug-ins.
    """
    groups = {
        "embedwatch-verdicts": check_alerts(shipped() if checks is None else checks),
        "embedwatch-itself": own_alerts(),
    }
    return {
        "groups": [{"name": name, "rules": [alert.rule() for alert in alerts]} for name, alerts in groups.items()],
    }
