"""The dashboard `embedwatch / Overview`: is anything wrong, where, and which dashboard says more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from embedwatch.exposition import CHECK_FAILING, SPACE_LABELS
from embedwatch.operations.dashboard import dashboard
from embedwatch.operations.lines import CHOSEN, HEALTHY, MODEL, SHOWN, chosen, drawn, latest, limit, worst
from embedwatch.operations.panels import Panel, leading, row, stat, table, target
from embedwatch.operations.promql import SELDOM, select
from embedwatch.operations.uids import ALIGNMENT, ATTENTION, DAEMON, GEOMETRY, NORMS, OVERVIEW, TRAINING

__all__ = ["overview"]

LIKE = {name: f"${name}" for name in CHOSEN}
GOOD_AT_ZERO = (("green", None), ("red", 1.0))
WARN_AT_ONE = (("green", None), ("orange", 1.0))


def overview() -> dict[str, Any]:
    """Return the dashboard."""
    return dashboard(
        "embedwatch / Overview",
        uid=OVERVIEW,
        description="Health of embedding spaces: verdicts, alerts, and one or two numbers of each sort.",
        panels=[*_verdicts(), *_spaces(), *_models()],
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
    yield leading(
        stat(
            "Overhead",
            "Share of the model's time that watching takes, of the worst model. " + HEALTHY + "at most 1 %.",
            [target(f"max({chosen('watch_overhead_ratio', variables=MODEL)})", "overhead", instant=True)],
            unit="percentunit",
            steps=(("green", None), ("orange", 0.01), ("red", 0.05)),
        ),
        "Daemon",
        DAEMON,
    )
    yield leading(
        stat(
            "New errors",
            "Exceptions inside embedwatch in the last minutes; the model runs on without the part. " + HEALTHY + "0.",
            [
                target(
                    f"sum(increase({chosen('errors_total', variables=MODEL)}[$__rate_interval]))",
                    "errors",
                    instant=True,
                )
            ],
            steps=GOOD_AT_ZERO,
        ),
        "Daemon",
        DAEMON,
    )
    yield stat(
        "Oldest window",
        "Age of the newest window of the place that was silent longest, but for places that are examined seldom. "
        + HEALTHY
        + "a few windows; above 15 min an alert says so.",
        [target(_oldest(), "age", instant=True)],
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
        widths={"segment": 90, "verdict": 90},
    )
    yield table(
        "Firing alerts",
        "Alerts of embedwatch that fire now, whatever the place. " + HEALTHY + "empty.",
        [target(_alerts(), instant=True)],
        columns=("alertname", "severity", "model", "place", "check"),
        value="",
        widths={"alertname": 250, "severity": 90, "model": 110},
    )


def _spaces() -> Iterator[Panel]:
    yield row("Spaces")
    yield leading(
        drawn(
            "Verdicts through time",
            "How many verdicts of a model are fail.",
            "0.",
            target(f"topk({SHOWN}, sum by (model) ({_failing('fail')}))", "{{model}}"),
            unit="short",
        ),
        "Geometry",
        GEOMETRY,
    )
    yield leading(
        drawn("Mean norm", "Mean length of the vectors.", "level.", worst("norm_mean")),
        "Norms and drift",
        NORMS,
    )
    yield leading(
        drawn(
            "Mean cosine",
            "Mean cosine of all pairs (anisotropy).",
            "level, and well below the limit; towards 1 all vectors are alike.",
            worst("mean_cosine"),
            limit("collapse"),
        ),
        "Geometry",
        GEOMETRY,
    )
    yield leading(
        drawn(
            "Effective rank",
            "Share of the directions that the vectors use, lowest first.",
            "level, above the limit.",
            worst("effective_rank_ratio", side="below"),
            limit("rank_collapse"),
            unit="percentunit",
        ),
        "Geometry",
        GEOMETRY,
    )
    yield leading(
        drawn(
            "Difference from the reference, likely by chance",
            "p-value, all sorts of differences together, lowest first.",
            "scattered between 0 and 1; low in several windows is drift.",
            worst("drift_p_value", side="below"),
            unit="sci",
        ),
        "Norms and drift",
        NORMS,
    )
    yield leading(
        drawn(
            "Neighbours that the other side finds",
            "Share of the nearest that mapped vectors find in another space, lowest first.",
            "as at the beginning.",
            worst("pair_overlap_ratio", side="below"),
            unit="percentunit",
        ),
        "Alignment",
        ALIGNMENT,
    )


def _models() -> Iterator[Panel]:
    yield row("Models")
    yield leading(
        drawn(
            "Inner entropy of attention",
            "Entropy over that of an even look, mean over heads, lowest layers first.",
            "0.5 to 0.85 in trained models; towards 0 it collapses.",
            worst("attention_inner_entropy_ratio", {"heads": "mean"}, side="below"),
            limit("attention_collapse"),
            unit="percentunit",
        ),
        "Attention and positions",
        ATTENTION,
    )
    yield leading(
        drawn(
            "Loss",
            "Mean loss of a window.",
            "falls, starting near the log of the number of classes.",
            latest("loss_mean"),
        ),
        "Training run",
        TRAINING,
    )
    yield leading(
        drawn(
            "Training step",
            "Steps done.",
            "a straight line up; level where the run stands still or has ended.",
            latest("training_step"),
            unit="short",
        ),
        "Training run",
        TRAINING,
    )


def _oldest() -> str:
    return f"max(time() - {chosen('window_timestamp_seconds', unlike={'place': '|'.join(SELDOM)})})"


def _seen() -> str:
    seen, expected = (chosen(f"places_{word}", variables=MODEL) for word in ("seen", "expected"))
    return f"sum({seen}) / sum({expected})"


def _alerts() -> str:
    like = {"alertname": "Embedwatch.*", "job": "$job", "instance": "$instance"}
    return (
        f"max by (alertname, severity, model, place, check) ({select('ALERTS', {'alertstate': 'firing'}, like=like)})"
    )
