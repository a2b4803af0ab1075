"""Runbooks: one page for each alert, under the heads that people look for at night."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from embedwatch.core.check import STORED, Check
from embedwatch.core.verdict import Limit
from embedwatch.exposition import (
    CHECK_FAILED_TIME,
    CHECK_FAILING,
    CHECK_UNKNOWN,
    PREFIX,
    THRESHOLD,
    Family,
    alert_name,
    catalogue,
)
from embedwatch.operations.alerts import Alert
from embedwatch.operations.check_alerts import can_fail
from embedwatch.operations.guides import GUIDES, Guide
from embedwatch.operations.promql import select
from embedwatch.operations.rules import all_alerts, shipped

__all__ = ["HEADS", "INDEX", "guide_of", "runbooks"]

HEADS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "How to silence")
INDEX = "README.md"
WIDTH = 120
SPACE = "model, place, segment"
SILENCE = "2h"
ABOUT = (
    "One page for each alert of `dashboards/prometheus/embedwatch.rules.yml`. RUN, PATH and words in capitals stand "
    "for yours. Serve this folder somewhere, and let the alerts lead there: `embedwatch rules --runbooks URL`."
)
GRAVE = {
    "critical": "critical: somebody should look now",
    "warning": "warning: for the next working day",
    "info": "info: only for looking",
    "none": "none: no complaint",
}


def runbooks(checks: Iterable[type[Check]] | None = None) -> dict[str, str]:
    """Return the text of each page by its file name: one for each alert, and an index.

    It imports the modules of all statistics, and torch with them.

    Args:
        checks: those that are alerted on; by default those that embedwatch ships.

    Raises:
        KeyError: for an alert on embedwatch itself that has no guide.
    """
    known = shipped() if checks is None else list(checks)
    by_alert = {alert_name(check.name): check for check in known if can_fail(check)}
    families = catalogue()
    alerts = all_alerts(known)
    pages = {INDEX: _index(alerts, by_alert)}
    for alert in alerts:
        check = by_alert.get(alert.name)
        guide = GUIDES[alert.name] if check is None else guide_of(check, families)
        pages[f"{alert.name}.md"] = _joined(_page(alert, guide, check))
    return pages


def guide_of(check: type[Check], families: Mapping[str, Family]) -> Guide:
    """Return what the runbook of a Check says: its own texts, the numbers that it reads, and its limits."""
    only = {"check": check.name}
    verdict = {**only, "severity": "fail"}
    queries = {
        "Where it fails": f"max by ({SPACE}) ({select(CHECK_FAILING.name, verdict)}) > 0",
        "Seconds since it failed last": f"time() - max by ({SPACE}) ({select(CHECK_FAILED_TIME.name, only)})",
        **{f"`{name}`, which it reads": _look(families.get(PREFIX + name), name) for name in check.reads},
        "Its limits, as the process has them": select(THRESHOLD.name, only),
        "Where it could not judge": f"{select(CHECK_UNKNOWN.name, only)} > 0",
    }
    return Guide(
        meaning=f"{check.meaning} {_judged(check)}",
        impact=check.impact,
        diagnosis=check.diagnosis,
        mitigation=check.mitigation,
        queries=queries,
        commands=_commands(check, families),
        silence="When the finding is understood, is no defect of this model, and a change is under way. Where it will "
        f'never be one, leave the check out for good: `watch(model, skip=["{check.name}"])`, or '
        f"`embedwatch audit PATH --skip {check.name}`.",
    )


def _look(family: Family | None, name: str) -> str:
    """Return the query that shows a measurement at each place."""
    series = PREFIX + name
    if family is None or family.kind == "gauge":
        return f"max by ({SPACE}) ({series})"
    if family.kind == "counter":
        return f"sum by ({SPACE}) (increase({series}[1h]))"
    return f"histogram_quantile(0.99, sum by ({SPACE}, le) (rate({series}_bucket[15m])))"


def _judged(check: type[Check]) -> str:
    limits = [limit for limit in (check.limit, check.floor) if limit]
    if not limits:
        return "It judges relative to what was before."
    return f"Limits: {'; '.join(map(_limit, limits))}."


def _limit(limit: Limit) -> str:
    sign = "≥" if limit.side == "above" else "≤"
    named = (("warn", limit.warn), ("fail", limit.fail))
    return ", ".join(f"{status} {sign} {value:g}" for status, value in named if value is not None)


def _commands(check: type[Check], families: Mapping[str, Family]) -> dict[str, str]:
    """Return what looks closer: at a recorded run, and where what is judged can be read again, at the vectors."""
    found = {}
    for name in check.reads:
        family = families.get(PREFIX + name)
        labelled = family is not None and len(family.labels) > len(SPACE.split(", "))
        found[f"The course of `{name}` in a recorded run"] = (
            f"embedwatch show RUN --metric {name}{' --all' if labelled else ''}"
        )
    if not check.roles or set(check.roles) & set(STORED):
        found["The rows that are to blame, in a file of vectors or the table of a model"] = (
            f"embedwatch audit PATH --only {check.name} --exhibits"
        )
    return found


# --- Pages -----------------------------------------------------------------------------------------------------------


def _page(alert: Alert, guide: Guide, check: type[Check] | None) -> Iterator[str]:
    yield f"# {alert.name}"
    yield alert.summary
    yield "\n".join(_facts(alert, check))
    yield f"## {HEADS[0]}\n\n{guide.meaning}"
    yield f"## {HEADS[1]}\n\n{guide.impact}"
    yield f"## {HEADS[2]}\n\n{guide.diagnosis}"
    yield from _shown(guide.queries, "promql")
    yield from _shown(guide.commands, "sh")
    yield f"## {HEADS[3]}\n\n{guide.mitigation}"
    yield f"## {HEADS[4]}\n\n{guide.silence}"
    yield from _shown({"For two hours": _silence(alert)}, "sh")


def _facts(alert: Alert, check: type[Check] | None) -> Iterator[str]:
    yield f"- **Severity:** {GRAVE[alert.severity]}"
    if check is not None:
        yield f"- **Check:** [`{check.name}`](../checks.md#{check.name}), {check.title}"
    yield f"- **Fires:** {f'after {alert.hold} minutes' if alert.hold else 'at once'}"
    if alert.keep or alert.trial.memory:
        yield f"- **Resolves:** {alert.keep or alert.trial.memory} minutes after its cause is gone"


def _shown(blocks: Mapping[str, str], language: str) -> Iterator[str]:
    for words, text in blocks.items():
        yield f"{words}:\n\n```{language}\n{text}\n```"


def _silence(alert: Alert) -> str:
    """Return the command that silences one alert, about one thing."""
    names = [name for name in ("model", "place", "check") if name in alert.trial.labels]
    others = [name for name in alert.trial.labels if name not in ("model", "place", "segment", "check")]
    about = [f"{name}={name.upper()}" for name in (*names[:2], *others)]
    if not alert.trial.labels:
        about = ["instance=INSTANCE"] if alert.trial.signals else []
    return " ".join(
        ["amtool silence add", f"alertname={alert.name}", *about, f"--duration={SILENCE}", '--comment="why, and who"']
    )


def _index(alerts: Iterable[Alert], checks: Mapping[str, type[Check]]) -> str:
    rows = ["| Alert | Severity | Says |", "| --- | --- | --- |"]
    rows += [f"| [{alert.name}]({alert.name}.md) | {alert.severity} | {alert.summary} |" for alert in alerts]
    return _joined(
        [
            "# Runbooks",
            ABOUT,
            f"Of {len(rows) - 2} alerts {len(checks)} are on verdicts of checks; the others are on embedwatch itself.",
            "\n".join(rows),
        ]
    )


def _joined(blocks: Iterable[str]) -> str:
    """Return a page of blocks: prose is wrapped, the rest stands as it is."""
    return "\n\n".join(_wrapped(part) for block in blocks for part in block.split("\n\n") if part) + "\n"


def _wrapped(part: str) -> str:
    if part.startswith(("#", "|", "```", "- ")):
        return part
    return textwrap.fill(" ".join(part.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
