"""What the comparison says of a pair, and lines of tables with their intervals."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.detection.pairs import REFERENCE, Make, Pair
from embedwatch import Judge
from embedwatch.batch import VectorBatch
from embedwatch.checks.drift import Drift as DriftCheck
from embedwatch.comparing import MANY_PERMUTATIONS, PERMUTATIONS
from embedwatch.core import History, Provenance, Snapshot, Space
from embedwatch.stats.drift import Drift

LEVELS = (0.01, 0.001)
BUDGET = "1 per 30d"
PER_DAY, SECONDS = 1_440.0, 60.0
"""One evaluation a minute."""
DOUBTFUL = 0.03
"""A p-value of 999 permutations above this is not at or below 0.001 with 9,999: those are spared."""
CERTAIN = 1.959964
"""Standard errors of an interval that holds 95 %."""
FAMILY = "drift_family_p_value"
SPACE = Space("model", "pooled")


@dataclass(frozen=True)
class Judged:
    """What was said of one pair.

    Args:
        p_values: by level, with the permutations that `embedwatch compare` takes at it; `None` where rows are too few.
        statuses: verdict by level.
        families: p-value of each family.
        length: decay length, in rows.
        foreign: share of foreign rows that is told.
        seconds: CPU seconds at a level of 1 %.
    """

    p_values: dict[float, float | None]
    statuses: dict[float, str]
    families: dict[str, float] = field(default_factory=dict)
    length: float = 1.0
    foreign: float | None = None
    seconds: float = 0.0


def batch(rows: Tensor) -> VectorBatch:
    """Return rows as a numbered batch."""
    return VectorBatch(rows, torch.arange(len(rows)), source="rows")


def judged(pair: Pair, seed: int, levels: Sequence[float] = LEVELS[:1]) -> Judged:
    """Return what the comparison says of a pair at each level."""
    started = time.process_time()
    frozen = Drift.fit([batch(pair.reference)], rows=len(pair.reference))
    first = _measured(Drift(frozen=frozen, seed=seed, permutations=PERMUTATIONS), pair)
    seconds = time.process_time() - started
    p_value = first.number("drift_p_value")
    found = dict.fromkeys(levels, first)
    if LEVELS[1] in found and p_value is not None and p_value <= DOUBTFUL:
        found[LEVELS[1]] = _measured(Drift(frozen=frozen, seed=seed, permutations=MANY_PERMUTATIONS), pair)
    return Judged(
        {level: snapshot.number("drift_p_value") for level, snapshot in found.items()},
        {level: Judge([DriftCheck(level=level)]).judge(snapshot)[0].status for level, snapshot in found.items()},
        {each.labels["family"]: each.number for each in first if each.name == FAMILY and each.number is not None},
        first.number("drift_decay_length") or 1.0,
        first.number("drift_foreign_ratio"),
        seconds,
    )


def watched(rows: Tensor, seed: int, size: int) -> tuple[int, int, int]:
    """Judge a healthy stream window by window, with a History beside one reference; windows share no row.

    Returns:
        alarms for one false alarm in 30 days of one evaluation a minute, windows whose p-value alone was at or below
        1 %, and windows.
    """
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    reference, stream = rows[order[:REFERENCE]], rows[order[REFERENCE:]]
    frozen = Drift.fit([batch(reference)], rows=REFERENCE)
    judge = Judge([DriftCheck(budget=BUDGET, evaluations_per_day=PER_DAY)])
    history = History()
    alarms = single = 0
    windows = [part for part in stream.split(size) if len(part) == size]
    for minute, window in enumerate(windows):
        pair = Pair(reference, window)
        snapshot = _measured(Drift(frozen=frozen, seed=minute, permutations=PERMUTATIONS), pair, minute * SECONDS)
        alarms += judge.judge(snapshot, history=history)[0].status in ("warn", "fail")
        single += (snapshot.number("drift_p_value") or 1.0) <= LEVELS[0]
        history.append(snapshot)
    return alarms, single, len(windows)


def _measured(statistic: Drift, pair: Pair, now: float = 0.0) -> Snapshot:
    statistic.update(batch(pair.window))
    return Snapshot(SPACE, tuple(statistic.compute()), Provenance(time=now, rows=len(pair.window)))


def share(hits: int, count: int) -> dict[str, Any]:
    """Return a share with its Wilson interval of 95 %.

    References:
        Wilson 1927, "Probable inference, the law of succession, and statistical inference".

    Example:
        >>> share(2, 200)
        {'found': 2, 'of': 200, 'share': 0.01, 'interval': [0.00275, 0.03572]}
    """
    if not 0 <= hits <= count or not count:
        raise ValueError(f"`hits` must be from 0 to `count`, which is at least 1, got {hits} of {count}; count again")
    part, square = hits / count, CERTAIN**2 / count
    middle = (part + square / 2) / (1 + square)
    half = CERTAIN * (part * (1 - part) / count + square / count / 4) ** 0.5 / (1 + square)
    interval = [round(max(0.0, middle - half), 5), round(min(1.0, middle + half), 5)]
    return {"found": hits, "of": count, "share": round(part, 5), "interval": interval}


def line(found: Sequence[Judged], **facts: Any) -> dict[str, Any]:
    """Return one line of a table: how many pairs were called different at each level, and what was said of them."""
    count = len(found)
    lengths = sorted(each.length for each in found)
    families = sorted({name for each in found for name in each.families})
    told = [each.foreign for each in found if each.foreign is not None]
    return {
        **facts,
        "trials": count,
        **{f"at_{level:g}": share(sum(_at(each, level) for each in found), count) for level in found[0].p_values},
        **{
            f"warned_at_{level:g}": share(sum(each.statuses[level] in ("warn", "fail") for each in found), count)
            for level in found[0].p_values
        },
        "unknown": share(sum(each.statuses[LEVELS[0]] == "unknown" for each in found), count)["share"],
        "no_p_value": share(sum(each.p_values[LEVELS[0]] is None for each in found), count)["share"],
        "families_at_0.01": {
            name: share(sum(each.families.get(name, 1.0) <= LEVELS[0] for each in found), count)["share"]
            for name in families
        },
        "median_decay_length": round(lengths[count // 2], 1),
        "mean_foreign_ratio": round(sum(told) / len(told), 4) if told else None,
        "cpu_seconds_each": round(sum(each.seconds for each in found) / count, 3),
    }


def _at(found: Judged, level: float) -> bool:
    p_value = found.p_values[level]
    return p_value is not None and p_value <= level


def judged_line(
    make: Make, seeds: Iterable[int], *, levels: Sequence[float] = LEVELS[:1], **facts: Any
) -> dict[str, Any]:
    """Return the line of pairs that are made one after another."""
    return line([judged(make(seed), seed, levels) for seed in seeds], **facts)


def pooled(lines: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """Return the share of several lines together.

    Example:
        >>> pooled([{"a": share(1, 50)}, {"a": share(1, 150)}], "a")["share"]
        0.01
    """
    return share(sum(each[key]["found"] for each in lines), sum(each[key]["of"] for each in lines))
