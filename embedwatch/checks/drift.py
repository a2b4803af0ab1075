"""Rows should be like those of the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

P_VALUE, FAMILY = "drift_p_value", "drift_family_p_value"
LEVEL = 0.01
"""Share of healthy windows that may be called different."""
LEAST_QUOTIENT = 1e-9


class Size(NamedTuple):
    """A size of change that counts: no change, from where it warns and fails, and how it is told."""

    metric: str
    none: float
    warn: float
    fail: float
    words: str


SIZES = (
    Size("drift_foreign_ratio", 0, 0.01, 0.1, "{:.1%} of the rows or more are foreign"),
    Size("drift_centroid_ratio", 0, 0.05, 0.25, "the mean moved by {:.2g} standard deviations"),
    Size("drift_variance_ratio", 1, 0.05, 0.25, "the variance is {:.3g} times what it was"),
    Size("drift_rank_ratio", 1, 0.05, 0.25, "the effective rank is {:.3g} times what it was"),
    Size("drift_norm_ratio", 1, 0.01, 0.05, "norms are {:.3g} times what they were"),
)


class Effect(NamedTuple):
    """A size that was measured: the number itself, and how many times the least that counts it is."""

    size: Size
    number: float
    times: float


class Drift(Check):
    """Rows do not differ from those of the reference by more than chance, or not by enough to matter.

    It needs both: a p-value at or below the level, and a change that is large enough. It warns from 1 % foreign rows
    on, or where the mean moved by 0.05 standard deviations, variance or rank by 5 %, norms by 1 %; it fails at 10 %
    foreign rows, 0.25 standard deviations, 25 % and 5 %. With too few independent rows it is `unknown`, and says how
    many are needed.

    Args:
        level: share of healthy windows that may be called different.
    """

    name = "drift"
    title = "drift from the reference"
    reads = (P_VALUE, *(size.metric for size in SIZES))
    weighs = (FAMILY, "drift_rows", "drift_rows_needed", "drift_decay_length", "drift_blocks")
    limit = Limit(warn=LEVEL, fail=LEVEL, side="below")
    exhibits = ("foreign_rows", "cells_gained", "cells_lost")
    meaning = "Rows are not what they were: other content, another mixture, or another way from input to vectors."
    impact = (
        "Thresholds, clusters and classifiers that were made on the reference no longer fit; old and new vectors may "
        "not compare."
    )
    diagnosis = (
        "Which family differs? Content: read the most foreign rows. Shift alone: another mixture of the same topics; "
        "see which cells gained and lost. Geometry, or all at once: another model, pooling, prefix, precision or "
        "normalisation."
    )
    mitigation = (
        "If the input changed and should have, take a new reference; if not, stop what sends it. If the model or its "
        "settings changed, restore them or encode the old rows again."
    )

    def __init__(self, *, level: float = LEVEL) -> None:
        if not 0 < level < 1:
            raise UsageError(f"`level` must be above 0 and below 1, got {level!r}; 0.01 is usual")
        self.level = level

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the p-value beside the level; the limit is there for a change that is large enough to matter."""
        del reference, history
        p_value, rows = snapshot.number(P_VALUE), _whole(snapshot, "drift_rows", snapshot.provenance.rows)
        effects = sorted(_effects(snapshot), key=lambda effect: -effect.times)
        level = Limit(warn=self.level, side="below")
        if p_value is None or not effects:
            reason = _too_few(snapshot, rows)
            return Evidence(None, level, rows, reason[0].upper() + reason[1:], P_VALUE)
        known: dict[str, Any] = {"measurement": P_VALUE, "p_value": p_value, "effect": effects[0].number}
        if p_value > self.level:
            if _asked_in_part(snapshot):
                return Evidence(None, level, rows, f"Content does not differ; {_too_few(snapshot, rows)}", **known)
            return Evidence(p_value, level, rows, f"Chance explains the difference (p = {p_value:.2g}).", **known)
        if effects[0].times < 1:
            return Evidence(
                p_value, None, rows, f"Surely different (p = {p_value:.2g}), and by less than matters.", **known
            )
        told = "; ".join(each.size.words.format(each.number) for each in effects if each.times >= 1)
        reason = f"Rows differ (p = {p_value:.2g}{_families(snapshot, self.level)}): {told}."
        grave = any(each.times * each.size.warn >= each.size.fail for each in effects)
        limit = Limit(fail=self.level, side="below") if grave else level
        return Evidence(p_value, limit, rows, reason, exhibits=self.exhibits, **known)


def _effects(snapshot: Snapshot) -> Iterator[Effect]:
    """Yield the sizes that have a value."""
    for size in SIZES:
        number = snapshot.number(size.metric)
        if number is None:
            continue
        amount = max(0.0, number)
        if size.none == 1:
            amount = max(number, 1 / number) - 1 if number >= LEAST_QUOTIENT else math.inf
        yield Effect(size, number, amount / size.warn)


def _whole(snapshot: Snapshot, name: str, otherwise: int) -> int:
    number = snapshot.number(name)
    return otherwise if number is None else int(number)


def _asked_in_part(snapshot: Snapshot) -> bool:
    """Return whether blocks sufficed for content only."""
    family = snapshot.get(FAMILY, family="shift")
    return family is not None and family.number is None


def _families(snapshot: Snapshot, level: float) -> str:
    """Return the families that differ at the level by themselves, to stand behind the p-value."""
    families = [each for each in snapshot if each.name == FAMILY and each.number is not None]
    found = [each.labels.get("family", "") for each in families if (each.number or 0) <= level]
    return f"; {', '.join(found)}" if found else ""


def _too_few(snapshot: Snapshot, rows: int) -> str:
    """Return the sentence that says which side is too short, and how many rows are needed."""
    needed, length = snapshot.number("drift_rows_needed"), snapshot.number("drift_decay_length")
    if needed is None:
        return (
            f"none of {snapshot.provenance.rows:,} rows could be compared: each holds NaN or Inf, has no number, or "
            "equals one on which the reference was fitted."
        )
    why = f", since {length:.3g} rows in a row are about one thing" if length is not None and length > 1 else ""
    before, now = (snapshot.number("drift_blocks", side=side) for side in ("reference", "window"))
    if before is not None and now is not None and before < now:
        return f"the reference is too short{why}: it needs {2 * needed:,.0f} rows that do not repeat."
    return f"{rows:,} rows are too few{why}: each side needs {needed:,.0f}, the reference twice as many."
