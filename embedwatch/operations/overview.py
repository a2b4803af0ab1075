"""The dashboard `embedwatch / Overview`: is anything wrong, where, and how it came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedwatch.exposition import CHECK_FAILING, SPACE_LABELS
from embedwatch.operations.dashboard import dashboard
from embedwatch.operations.lines import CHOSEN, HEALTHY, MODEL, chosen
from embedwatch.operations.panels import Panel, row, stat, table, target
from embedwatch.operations.promql import SELDOM, select
from embedwatch.operations.run_rows import training, watching
from embedwatch.operations.space_rows import geometry, norms, tokens

__all__ = ["UID", "overview"]

UID = "embedwatch-overview"
LIKE = {name: f"${name}" for name in CHOSEN}
GOOD_AT_ZERO = (("green", None), ("red", 1.0))
WARN_AT_ONE = (("green", None), ("orange", 1.0))


def overview() -> dict[str, Any]:
    """Return the dashboard."""
    return dashboard(
        "embedwatch / Overview",
        uid=UID,
        description="Health of embedding spaces: verdicts, norms, geometry, token table, training, watching itself.",
        panels=[*_verdicts(), *norms(), *geometry(), *tokens(), *training(), *watching()],
    )


def _failing(severity: str) -> str:
    """Return which checks are at least so grave, of any instance."""
    inner = select(CHECK_FAILING.name, {"severity": severity}, like=LIKE)
    return f"max by ({', '.join((*SPACE_LABELS, 'check'))}) ({inner})"


def _verdicts() -> Iterator[Panel]:
    fail, warn = _failing("fail"), _failing("warn")
    yield row("Verdicts")
    yield stat(
        "Failing checks",
        "Verdicts of fail in the chosen places. " + HEALTHY + "0.",
        [target(f"sum({fail})", "fail", instant=True)],
        steps=GOOD_AT_ZERO,
    )
    yield stat(
        "Warnings",
        "Verdicts of warn in the chosen places, without those that fail. " + HEALTHY + "0, or steady and understood.",
        [target(f"sum({warn}) - sum({fail})", "warn", instant=True)],
        steps=WARN_AT_ONE,
    )
    yield stat(
        "Places seen",
        "Share of the places to be watched that have been seen. " + HEALTHY + "100 %; less means blind spots.",
        [target(_seen(), "seen", instant=True)],
        unit="percentunit",
        steps=(("red", None), ("green", 1.0)),
    )
    yield stat(
        "Overhead",
        "Share of the model's time that watching takes, of the worst model. " + HEALTHY + "at most 1 %.",
        [target(f"max({chosen('watch_overhead_ratio', variables=MODEL)})", "overhead", instant=True)],
        unit="percentunit",
        steps=(("green", None), ("orange", 0.01), ("red", 0.05)),
    )
    yield stat(
        "New errors",
        "Exceptions inside embedwatch in the last minutes; the model runs on without the part. " + HEALTHY + "0.",
        [target(f"sum(increase({chosen('errors_total', variables=MODEL)}[$__rate_interval]))", "errors", instant=True)],
        steps=GOOD_AT_ZERO,
    )
    yield stat(
        "Oldest window",
        "Age of the newest window of the place that was silent longest, but for the table, which is examined seldom. "
        + HEALTHY
        + "a few windows; above 15 min an "
        "alert says so.",
        [target(f"max(time() - {chosen('window_timestamp_seconds', unequal=SELDOM)})", "age", instant=True)],
        unit="s",
        steps=(("green", None), ("orange", 900.0)),
    )
    yield table(
        "Checks at or past a limit",
        "Each check that warns or fails, with its place. " + HEALTHY + "empty.",
        [target(f"2 * ({fail} > 0)\nor\n{warn} > 0", instant=True)],
        columns=("model", "place", "segment", "check"),
        value="verdict",
        words={"1": ("warn", "orange"), "2": ("fail", "red")},
    )
    yield table(
        "Firing alerts",
        "Alerts of embedwatch that fire now, whatever the place. " + HEALTHY + "empty.",
        [target(_alerts(), instant=True)],
        columns=("alertname", "severity", "model", "place", "check"),
        value="",
    )


def _seen() -> str:
    seen, expected = (chosen(f"places_{word}", variables=MODEL) for word in ("seen", "expected"))
    return f"sum({seen}) / sum({expected})"


def _alerts() -> str:
    like = {"alertname": "Embedwatch.*", "job": "$job", "instance": "$instance"}
    return (
        f"max by (alertname, severity, model, place, check) ({select('ALERTS', {'alertstate': 'firing'}, like=like)})"
    )
