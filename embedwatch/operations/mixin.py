"""The mixin: rules and dashboards as data with gaps, which `dashboards/mixin/mixin.libsonnet` fills from `_config`.

A text with gaps is a list: parts of it as they stand, and between them `{"gap": NAME}`. Jsonnet has no regular
expressions, and takes a quarter of a minute to look for gaps in texts by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from embedwatch.core.errors import UsageError
from embedwatch.operations.boards import boards
from embedwatch.operations.own_alerts import OVERHEAD, SECONDS, STALE_AFTER
from embedwatch.operations.rules import RECORDING, rule_file
from embedwatch.operations.scope import PAGE, Scope

__all__ = ["GAPS", "mixin_data"]

SELECTOR, JOB, RUNBOOKS = 'gap="selector"', "<<job>>", "<<runbooks>>"
"""What stands for selector, job and runbooks until the gaps are made."""
NUMBERS = (
    ("EmbedwatchStale", f"> {STALE_AFTER * SECONDS}", "> <<staleSeconds>>"),
    ("EmbedwatchStale", f"than {STALE_AFTER} minutes", "than <<staleMinutes>> minutes"),
    ("EmbedwatchOverhead", f"> {OVERHEAD}", "> <<overheadRatio>>"),
    ("EmbedwatchOverhead", f"than {OVERHEAD:.0%}", "than <<overheadPercent>>%"),
)
"""Alert, how a limit of its own stands in it, and the gap. Limits on verdicts are those of the checks."""
GAPS = {
    f"{{{SELECTOR}}}": "only",
    f",{SELECTOR}": "also",
    f'"{JOB}"': "job",
    RUNBOOKS: "runbooks",
    **{f"<<{name}>>": name for name in ("staleSeconds", "staleMinutes", "overheadRatio", "overheadPercent")},
}
"""What stands in a text to the name of its gap: `only` for a selector alone, `also` for one behind others."""
MARK = re.compile("(" + "|".join(map(re.escape, GAPS)) + ")")


def mixin_data() -> dict[str, Any]:
    """Return alerts, recording rules and dashboards with gaps.

    Raises:
        UsageError: if a number is not where it should be.
    """
    scope = Scope(job=JOB, selector=SELECTOR, runbooks=f"{RUNBOOKS}/{PAGE}.md")
    groups = scope.applied(rule_file())["groups"]
    _mark_numbers({rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule})
    return {
        "alerts": [_gapped(group) for group in groups if group["name"] != RECORDING],
        "records": [_gapped(group) for group in groups if group["name"] == RECORDING],
        "dashboards": {name: _gapped(scope.dashboard(board)) for name, board in boards().items()},
    }


def _mark_numbers(alerts: Mapping[str, dict[str, Any]]) -> None:
    for name, number, gap in NUMBERS:
        alert = alerts[name]
        texts = (alert["expr"], alert["annotations"]["description"])
        if not any(number in text for text in texts):
            raise UsageError(f"`NUMBERS` must be what stands in {name}, got {number!r}; write it as the alert does")
        alert["expr"], alert["annotations"]["description"] = (text.replace(number, gap) for text in texts)


def _gapped(value: Any) -> Any:
    """Return data in which every text with a mark is a list of parts and gaps."""
    if isinstance(value, Mapping):
        return {name: _gapped(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_gapped(inner) for inner in value]
    if not isinstance(value, str) or not MARK.search(value):
        return value
    return [{"gap": GAPS[part]} if part in GAPS else part for part in MARK.split(value) if part]
