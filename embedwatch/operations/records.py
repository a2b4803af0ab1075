"""Recording rules: a few numbers for each model, for pages about many models and for storage over years.

They say how things stand at this moment. Alerts do not read them: those look past missing data on their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embedwatch.exposition import CHECK_FAILING, CHECK_UNKNOWN, PREFIX
from embedwatch.operations.promql import PROCESS, by, select
from embedwatch.operations.series import STALE, Played, notation

__all__ = ["RECORDS", "Record", "record_trials"]

MODEL = (*PROCESS, "model")
SEEN, EXPECTED = f"{PREFIX}places_seen", f"{PREFIX}places_expected"
Pair = tuple[float, float]
"""What something is before and after a change."""


@dataclass(frozen=True, slots=True)
class Record:
    """One recording rule, with what it says in its test.

    Args:
        name: `level:metric:operation`.
        expr: PromQL.
        help: one sentence.
        trial: model of `MODELS` to the value before and after.
    """

    name: str
    expr: str
    help: str
    trial: Mapping[str, Pair]

    def rule(self) -> dict[str, Any]:
        """Return the rule as it stands in a rule file."""
        return {"record": self.name, "expr": self.expr}


def _sum(severity: str) -> str:
    return by("sum", MODEL, select(CHECK_FAILING.name, {"severity": severity}))


RECORDS = (
    Record(
        f"model:{CHECK_FAILING.name}:max",
        by("max", MODEL, f"sum without (severity) ({CHECK_FAILING.name})"),
        "Gravest verdict of a model: 0 nothing, 1 warn, 2 fail.",
        {"healthy": (0, 0), "near": (1, 1), "worse": (0, 2), "mixed": (2, 2)},
    ),
    Record(
        f"model:{CHECK_FAILING.name}:sum",
        _sum("fail"),
        "How many verdicts of a model are fail.",
        {"healthy": (0, 0), "near": (0, 0), "worse": (0, 1), "mixed": (1, 2)},
    ),
    Record(
        f"model:{PREFIX}check_warning:sum",
        f"{_sum('warn')}\n-\n{_sum('fail')}",
        "How many are warn: past the one limit, and not past the other.",
        {"healthy": (0, 0), "near": (1, 1), "worse": (0, 0), "mixed": (1, 0)},
    ),
    Record(
        f"model:{CHECK_UNKNOWN.name}:sum",
        by("sum", MODEL, CHECK_UNKNOWN.name),
        "How many are unknown: a check failed, or saw too little.",
        {"healthy": (2, 1), "near": (2, 1), "worse": (2, 1), "mixed": (2, 1)},
    ),
    Record(
        f"model:{PREFIX}places_seen:ratio",
        f"{by('sum', MODEL, SEEN)}\n/\n{by('sum', MODEL, EXPECTED)}",
        "Share of the places of a model that have been seen.",
        {"healthy": (0.75, 1), "near": (0.75, 1), "worse": (0.75, 1), "mixed": (0.75, 1)},
    ),
)

# --- Their tests -----------------------------------------------------------------------------------------------------

MODELS: dict[str, dict[str, tuple[str, str]]] = {
    "healthy": {"collapse": ("ok", "ok"), "zero_rows": ("ok", "ok")},
    "near": {"collapse": ("warn", "warn"), "zero_rows": ("ok", "ok")},
    "worse": {"collapse": ("ok", "fail"), "zero_rows": ("ok", "ok")},
    "mixed": {"collapse": ("fail", "fail"), "zero_rows": ("warn", "fail")},
}
"""Model to the statuses of its checks before and after."""
SHOWN = {"ok": (0, 0), "warn": (1, 0), "fail": (1, 1)}
"""Status to what is exposed for `warn` and for `fail`."""
UNKNOWN = {"collapse": (1, 1), "zero_rows": (1, 0)}
PLACES = {SEEN: (3, 4), EXPECTED: (4, 4)}
CHANGE, END = 3, 6
"""Minutes at which a model changes, and at which it goes away."""


def record_trials() -> list[dict[str, Any]]:
    """Return the test of the recording rules for promtool: several models, before and after a change, and gone."""
    return [
        {
            "name": "recording rules",
            "interval": "1m",
            "input_series": [line for model in MODELS for line in _series(model)],
            "promql_expr_test": [
                {"expr": record.name, "eval_time": f"{minute}m", "exp_samples": _samples(record, minute)}
                for record in RECORDS
                for minute in (CHANGE - 1, CHANGE, END)
            ],
        }
    ]


def _labels(model: str) -> dict[str, str]:
    return {"job": "embedwatch", "instance": f"{model}:9477", "model": model}


def _series(model: str) -> list[dict[str, str]]:
    found = []
    for check, (before, after) in MODELS[model].items():
        labels = {**_labels(model), "place": "pooled", "segment": "all", "check": check}
        found.append(_line(CHECK_UNKNOWN.name, labels, UNKNOWN[check]))
        for severity, *shown in zip(("warn", "fail"), SHOWN[before], SHOWN[after], strict=True):
            found.append(_line(CHECK_FAILING.name, {**labels, "severity": severity}, (shown[0], shown[1])))
    monitor = {**_labels(model), "place": "monitor", "segment": "all"}
    return [*found, *(_line(metric, monitor, pair) for metric, pair in PLACES.items())]


def _line(metric: str, labels: Mapping[str, str], pair: Pair) -> dict[str, str]:
    played: list[Played] = [*(pair[minute >= CHANGE] for minute in range(END)), STALE]
    return {"series": select(metric, labels), "values": notation(played)}


def _samples(record: Record, minute: int) -> list[dict[str, Any]]:
    if minute >= END:
        return []
    return [
        {"labels": select(record.name, _labels(model)), "value": record.trial[model][minute >= CHANGE]}
        for model in MODELS
    ]
