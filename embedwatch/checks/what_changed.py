"""What was done to rows that differ from those of the reference: one name, with what speaks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

P_VALUE = "drift_p_value"
LEVEL = 0.01
"""Share of healthy windows that may be called different."""
HELD = 3
"""Windows in a row that must differ, where there is a History: one by chance is no change."""
NOTHING, OTHER = "nothing", "other"
PRECISIONS = ("float16", "bfloat16", "int8")
"""Coarser formats, from fine to coarse."""
NEARLY_ALL = 0.99
FEW = 1e-9
CLOSE = 0.5
"""Share of the signs of a change that must be there for it to be named as the next nearest."""
GRADES = {
    "drift_foreign_ratio": (0, 0.01, 0.1),
    "drift_centroid_ratio": (0, 0.05, 0.25),
    "drift_variance_ratio": (1, 0.05, 0.25),
    "drift_rank_ratio": (1, 0.05, 0.25),
    "drift_norm_ratio": (1, 0.01, 0.05),
    "transformation_moved_ratio": (0, 0.07, 0.25),
}
"""No change, and from where it is large enough to warn and to fail: those of the check `drift`, and rows that moved."""
OF_REGIONS = ("common", "gone", "lost", "moved")
PLAIN = {
    "foreign": "drift_foreign_ratio",
    **{
        name: f"transformation_{name}_ratio"
        for name in (*OF_REGIONS, "aside", "concentration", "filled", "lead", "offset", "overlap", "tail")
    },
    "within": "transformation_within_ratio",
    "spectrum": "transformation_spectrum_distance",
    "trailing": "transformation_trailing_dimensions",
}
WORDS = {
    "aside": "the mean moved by {:.2g} standard deviations to the side",
    "common": "{:.0%} of the shift is common to all regions",
    "concentration": "the mean is {:.3g} times as strong beside the variance",
    "emptied": "{:.0f} more directions are empty",
    "emptier": "{:.0%} of what moved left such regions",
    "filled": "directions that were empty hold {:.3g} times what they held",
    "foreign": "{:.1%} of the rows or more are foreign",
    "gone": "regions that held {:.1%} of the rows lost nearly all of them",
    "lead": "leading directions hold {:.0%} of their share",
    "lost": "regions that held {:.1%} of the rows lost most of them",
    "lowered": "numbers lie on the grid of {precision}",
    "moved": "{:.0%} of the rows moved to other regions",
    "norm": "norms are {:.3g} times what they were",
    "offset": "the mean moved by {:.2g} standard deviations",
    "overlap": "leading directions overlap by {:.0%} of what they did",
    "spectrum": "the sorted spectrum differs by {:.2g}",
    "tail": "the last directions hold {:.3g} times their share",
    "trailing": "the last {:.0f} dimensions are zero",
    "unit": "the share of rows of length 1 changed by {:+.0%}",
    "within": "rows of a region vary {:.2g} times as much",
}
CANARY = "Unpaired rows do not surely tell a rotated space from another model: record a canary to know."
Numbers = Mapping[str, "float | None"]


class Sign(NamedTuple):
    """A number that speaks for a change where it lies between two bounds."""

    number: str
    least: float = -math.inf
    most: float = math.inf

    def met(self, numbers: Numbers) -> bool:
        """Return whether it is known and lies there."""
        number = numbers.get(self.number)
        return number is not None and self.least <= number <= self.most


class Change(NamedTuple):
    """A kind of change.

    Args:
        name: one word.
        words: what it is.
        signs: all must be met.
        remedy: what to do.
        silent: it is told also where `drift` finds no difference.
        alarm: where its first sign alarms by itself then.
    """

    name: str
    words: str
    signs: tuple[Sign, ...]
    remedy: str
    silent: bool = False
    alarm: Limit | None = None


MODEL = f"{CANARY} Encode the old rows again, or go back to the old model; never mix both in one index."
RESTORE = "Restore the setting, or encode the old rows again with the new one."
GONE = "Find out why these rows no longer come."
NEW = "Read the foreign rows; should they be there?"
MIX = "See which regions gained and lost; if that is as it should be, take a new reference."
HALF = Limit(warn=0.5)
FILLED = Sign("filled", 10)
BLIND = Sign("blind", 1)
"""The reference has no empty directions, which would tell more."""
EMPTY = Sign("unfilled", 1)
"""Directions that were empty are not filled, or there were none."""
KEPT = (Sign("lead", 0.9, 1.1), Sign("tail", 0.85, 1.15))
SAME_SPECTRUM = (Sign("spectrum", most=0.3), Sign("concentration", 0.85, 1.18))
CHANGES = (
    Change("truncation", "dimensions were cut off", (Sign("trailing", 1),), RESTORE, silent=True, alarm=Limit(warn=1)),
    Change(
        "rotation",
        "the space was rotated, or it is another model of the same spectrum",
        (FILLED, Sign("lead", most=0.97), Sign("emptied", 0, 0), *SAME_SPECTRUM),
        MODEL,
    ),
    Change("model", "another model or another layer", (FILLED, Sign("lead", most=0.9)), MODEL),
    Change(
        "rotation",
        "the space was rotated, or it is another model of the same spectrum",
        (BLIND, Sign("tail", 1.6), Sign("lead", most=0.95), *SAME_SPECTRUM),
        MODEL,
    ),
    Change("model", "another model or another layer", (BLIND, Sign("tail", 2), Sign("lead", most=0.5)), MODEL),
    Change("normalisation", "rows are normalised now", (Sign("unit", 0.5),), RESTORE, silent=True, alarm=HALF),
    Change(
        "normalisation",
        "rows are no longer normalised",
        (Sign("unit", most=-0.5), Sign("spread", 0.003)),
        RESTORE,
        silent=True,
        alarm=HALF,
    ),
    Change("precision", "precision was lowered", (Sign("lowered", 1),), RESTORE, silent=True),
    Change("rank", "rank was lowered", (Sign("emptied", 2),), RESTORE),
    Change("rank", "rank was lowered", (Sign("tail", most=0.7), Sign("lead", 1.0)), RESTORE),
    Change(
        "pooling",
        "pooling or prefix changed",
        (EMPTY, Sign("offset", 0.17), Sign("aside", 0.15), Sign("common", 0.4), *KEPT),
        RESTORE,
    ),
    Change(
        "pooling",
        "pooling or prefix changed",
        (EMPTY, Sign("offset", 0.5), Sign("common", 0.8), Sign("within", most=0.7)),
        RESTORE,
    ),
    Change(
        "noise",
        "noise was added",
        (FILLED, Sign("lead", 0.9), Sign("offset", most=0.035), Sign("emptied", most=-1)),
        "Look for lossy compression or a faulty layer; encode again.",
    ),
    Change(
        "noise",
        "noise was added",
        (BLIND, Sign("tail", 1.15), Sign("lead", 0.94), Sign("offset", most=0.035)),
        "Look for lossy compression or a faulty layer; encode again.",
    ),
    Change(
        "rotation",
        "the space was rotated a little",
        (FILLED, Sign("emptied", 0, 0), Sign("lead", 0.95), *SAME_SPECTRUM),
        MODEL,
    ),
    Change(
        "settings",
        "the way from input to vectors changed: no content fills directions that the model leaves empty",
        (FILLED,),
        f"Find what changed between input and vectors. {RESTORE}",
    ),
    Change(
        "norms",
        "norms changed, directions did not",
        (Sign("grown", 0.01), Sign("offset", most=0.05), Sign("concentration", 0.85, 1.13), *KEPT),
        "Compare by cosine, or restore the scale.",
    ),
    Change(
        "collapse",
        "rows collapse toward their mean",
        (Sign("concentration", 1.13), Sign("aside", most=0.036), Sign("moved", most=0.118), *KEPT),
        "Stop what trains or averages the vectors, and go back to those of the reference.",
    ),
    Change(
        "collapse",
        "rows collapse toward their mean",
        (Sign("concentration", 1.35), Sign("aside", most=0.06), *KEPT),
        "Stop what trains or averages the vectors, and go back to those of the reference.",
    ),
    Change("content", "a topic is gone", (Sign("gone", 0.02), Sign("emptier", 0.2)), GONE),
    Change("content", "new content came", (Sign("foreign", 0.035),), NEW),
    Change("mix", "the mix of topics changed", (Sign("moved", 0.15), Sign("aside", 0.03)), MIX),
    Change("content", "new content came", (Sign("foreign", 0.015), Sign("tail", 1.025), Sign("lead", most=0.995)), NEW),
    Change("content", "a topic is gone", (Sign("lost", 0.02), Sign("aside", 0.03)), GONE),
    Change("mix", "the mix of topics changed", (Sign("moved", 0.07), Sign("aside", 0.03)), MIX),
    Change("content", "new content came", (Sign("foreign", 0.01),), NEW),
    Change("mix", "the mix of topics changed", (Sign("moved", 0.05), Sign("aside", 0.03)), MIX),
)
"""The first whose signs are all met names the change."""
OF_DATA = ("content", "mix")
"""Changes of what comes. All others are changes of the way from input to vectors, which matter however small."""


class WhatChanged(Check):
    """Rows that differ from those of the reference have a name for what was done to them.

    One of: truncation, rotation, model, normalisation, precision, rank, pooling, noise, settings, norms, collapse,
    content, mix; nothing; other. Truncation, normalisation and precision are told always; the others where
    `drift_p_value` is at or below the level, in three windows in a row where there is a History. Content and mix warn
    and fail at the sizes at which `drift` does, or where 7 and 25 % of the rows went to other regions; everything else
    is a change of the way from input to vectors, and warns however small it is. Lower precision alone, which the
    p-value does not show, is told and alarms nobody. A window of unpaired rows cannot tell everything: the next nearest
    name is said, and what would settle it.

    Args:
        level: share of healthy windows that may be called different.
    """

    name = "what_changed"
    title = "what changed"
    reads = (P_VALUE, "transformation_lead_ratio", "transformation_exact_ratio", "transformation_unit_ratio")
    weighs = (
        *GRADES,
        *(metric for metric in PLAIN.values() if metric not in GRADES and metric != "transformation_lead_ratio"),
        "transformation_empty_dimensions",
        "transformation_norm_ratio",
        "transformation_norm_spread_ratio",
        "transformation_rows",
    )
    limit = Limit(warn=LEVEL, fail=LEVEL, side="below")
    exhibits = ("foreign_rows", "cells_gained", "cells_lost")
    meaning = "Rows are not what they were, and numbers that each kind of change moves in its own way say how."
    impact = (
        "Another model, pooling, prefix or rotation makes old and new vectors incomparable; new content and another "
        "mix do not, but thresholds that were made on the reference no longer fit."
    )
    diagnosis = (
        "Read the name and the next nearest one. Two spaces of one spectrum cannot be told from a rotation without the "
        "same texts then and now: record a canary."
    )
    mitigation = (
        "Restore the setting that changed, or encode the old rows again; where content or mix changed as they should, "
        "take a new reference."
    )

    def __init__(self, *, level: float = LEVEL) -> None:
        if not 0 < level < 1:
            raise UsageError(f"`level` must be above 0 and below 1, got {level!r}; 0.01 is usual")
        self.level = level

    def named(self, snapshot: Snapshot) -> str | None:
        """Return the name of the change in one window, `nothing`, `other`, or `None` where too little is known."""
        sure = _sure(snapshot, self.level)
        found = _first(_numbers(snapshot), sure=sure)
        if found is not None:
            return found.name
        if sure and _grade(snapshot) != "ok":
            return OTHER
        return NOTHING if snapshot.number(P_VALUE) is not None else None

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the p-value beside the level; the limit is there for what is large enough to matter."""
        del reference
        numbers, p_value = _numbers(snapshot), snapshot.number(P_VALUE)
        rows = int(snapshot.number("transformation_rows") or 0) or snapshot.provenance.rows
        sure = _sure(snapshot, self.level) and all(_sure(past, self.level) for past in _before(history, snapshot))
        found = _first(numbers, sure=sure)
        reason = _unnamed(snapshot, sure=sure) if found is None else _reason(found, numbers, snapshot)
        if sure and p_value is not None:
            shown = self.exhibits if found is None or found.name in ("content", "mix") else ()
            grade = _grade(snapshot)
            meant = found is not None and found.name not in OF_DATA
            limit = _limit("warn" if grade == "ok" and meant else grade, self.level)
            return Evidence(p_value, limit, rows, reason, P_VALUE, p_value=p_value, exhibits=shown)
        if found is None:
            return Evidence(p_value, None, rows, reason, P_VALUE, p_value=p_value)
        number = numbers[found.signs[0].number]
        return Evidence(0.0 if number is None else abs(number), found.alarm, rows, reason)


def _unnamed(snapshot: Snapshot, *, sure: bool) -> str:
    """Return what is said where no change is named."""
    p_value = snapshot.number(P_VALUE)
    if p_value is None:
        return "Too little is known to say; see `drift`."
    if not sure:
        return f"{NOTHING.capitalize()} (p = {p_value:.2g})."
    if _grade(snapshot) == "ok":
        return f"{NOTHING.capitalize()} that matters: surely different (p = {p_value:.2g}), and by little."
    return f"{OTHER.capitalize()}: surely different (p = {p_value:.2g}), and in none of the ways that are known."


def _limit(grade: str, level: float) -> Limit | None:
    """Return the limit at which the p-value gives that status."""
    limits = {"warn": Limit(warn=level, side="below"), "fail": Limit(fail=level, side="below")}
    return limits.get(grade)


def _sure(snapshot: Snapshot, level: float) -> bool:
    """Return whether rows differ by more than chance."""
    p_value = snapshot.number(P_VALUE)
    return p_value is not None and p_value <= level


def _before(history: History | None, snapshot: Snapshot) -> list[Snapshot]:
    """Return the windows just before, as many as must differ too."""
    past = [] if history is None else [each for each in history if each != snapshot]
    return past[1 - HELD :]


def _first(numbers: Numbers, *, sure: bool) -> Change | None:
    """Return the first change whose signs are all met; without surety only those that are told always."""
    asked = (change for change in CHANGES if sure or change.silent)
    return next((change for change in asked if all(sign.met(numbers) for sign in change.signs)), None)


def _numbers(snapshot: Snapshot) -> Numbers:
    """Return the numbers that signs are about."""
    numbers = {name: snapshot.number(metric) for name, metric in PLAIN.items()}
    empty = [snapshot.number("transformation_empty_dimensions", side=side) for side in ("reference", "window")]
    unit = [snapshot.number("transformation_unit_ratio", side=side) for side in ("reference", "window")]
    norm = snapshot.number("transformation_norm_ratio")
    precision = _precision(snapshot, "reference"), _precision(snapshot, "window")
    gone, moved = numbers["gone"], numbers["moved"]
    return {
        **numbers,
        "emptier": None if gone is None or moved is None else gone / max(gone, moved, FEW),
        "emptied": None if empty[0] is None or empty[1] is None else empty[1] - empty[0],
        "unit": None if unit[0] is None or unit[1] is None else unit[1] - unit[0],
        "norm": norm,
        "spread": snapshot.number("transformation_norm_spread_ratio"),
        "grown": None if not norm or norm <= 0 else abs(math.log(norm)),
        "lowered": max(0, precision[1] - precision[0]),
        "blind": float(numbers["filled"] is None),
        "unfilled": float(numbers["filled"] is None or numbers["filled"] < FILLED.least),
    }


def _precision(snapshot: Snapshot, side: str) -> int:
    """Return 0 for full precision, or the place of the coarsest format that holds nearly all numbers, from 1."""
    found = 0
    for place, name in enumerate(PRECISIONS, start=1):
        share = snapshot.number("transformation_exact_ratio", precision=name, side=side)
        found = place if share is not None and share >= NEARLY_ALL else found
    return found


def _grade(snapshot: Snapshot) -> str:
    """Return what the sizes of the difference come to: ok, warn or fail."""
    grade = "ok"
    for metric, (none, warn, fail) in GRADES.items():
        number = snapshot.number(metric)
        if number is None:
            continue
        amount = max(0.0, number) if none == 0 else math.expm1(abs(math.log(number))) if number > 0 else math.inf
        if amount >= fail:
            return "fail"
        grade = "warn" if amount >= warn else grade
    return grade


def _reason(found: Change, numbers: Numbers, snapshot: Snapshot) -> str:
    """Return name, what speaks for it, the next nearest name and what to do, as sentences."""
    told = "; ".join(_told(found, numbers, snapshot))
    nearest = _nearest(found, numbers)
    other = f" Next nearest: {nearest.name}." if nearest is not None else ""
    return f"{found.name.capitalize()}: {found.words}: {told}.{other} {found.remedy}"


def _told(found: Change, numbers: Numbers, snapshot: Snapshot) -> Iterator[str]:
    """Yield the numbers that speak for it in words."""
    for name in dict.fromkeys("norm" if sign.number == "grown" else sign.number for sign in found.signs):
        number = numbers.get(name)
        if name in WORDS and number:
            precision = PRECISIONS[_precision(snapshot, "window") - 1]
            yield WORDS[name].format(number, precision=precision)


def _nearest(found: Change, numbers: Numbers) -> Change | None:
    """Return the other change that has most of its signs; `None` where none has half of them."""
    best, most = None, CLOSE
    for change in CHANGES:
        share = sum(sign.met(numbers) for sign in change.signs) / len(change.signs)
        if change.name != found.name and share > most:
            best, most = change, share
    return best
