"""A training that learns how frequent tokens are is no collapse; what is lost for long, or all at once, is one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from embedwatch.core import Check, History, Metric, Provenance, Snapshot, Space
from embedwatch.core.registry import registered
from embedwatch.core.verdict import Status
from embedwatch.judging import Judge

SPREAD = Metric("dimension_spread_ratio", "A number.")
HEALTHY = [0.75, 0.75, 0.4, 0.08, 0.09, 0.3, 0.5]
"""As in the last layer of a small decoder, at steps 1, 10, 20, ..."""


def play(values: Sequence[float], *, start: int | None = 1, every: int = 10) -> list[tuple[Status, str]]:
    """Judge a course window by window."""
    judge, history = Judge([registered(Check)["hidden_collapse"]()]), History()
    told = []
    for place, value in enumerate(values):
        step = None if start is None else start + place * every
        provenance = Provenance(time=float(place), rows=1_000, step=step, role="hidden")
        snapshot = Snapshot(Space("m", "norm"), (SPREAD.measure(value),), provenance)
        told += [(verdict.status, verdict.reason) for verdict in judge.judge(snapshot, history=history)]
        history.append(snapshot)
    return told


def statuses(told: Sequence[tuple[Status, str]]) -> list[Status]:
    return [status for status, _ in told]


def test_a_time_in_which_tokens_are_alike_is_normal() -> None:
    told = play(HEALTHY)
    assert set(statuses(told)) == {"ok"}
    assert "normal for a time up to step 2,000" in told[3][1]


@pytest.mark.parametrize(
    ("course", "start", "wanted"),
    [
        ([0.75, 0.3, 0.03], 1, ["ok", "ok", "fail"]),
        ([0.75, 0.08, 0.08], 1_985, ["ok", "ok", "warn"]),
        ([0.08, 0.08, 0.08], 1, ["warn", "warn", "warn"]),
        ([0.75, 0.08], None, ["ok", "warn"]),
    ],
    ids=["far down", "for long", "never sound", "no training"],
)
def test_what_is_no_phase_is_told(course: list[float], start: int | None, wanted: list[Status]) -> None:
    assert statuses(play(course, start=start)) == wanted
