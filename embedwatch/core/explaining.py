"""Explaining: a verdict in plain words, from what is written in it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

from embedwatch.core.evidence import Evidence, Limit, Status

__all__ = ["explained"]

STATUS_WORDS = {
    "ok": "nothing is wrong",
    "warn": "worth a look",
    "fail": "something is wrong",
    "unknown": "there was too little to see",
}
HALF = 0.5
"""A p-value from here on says nothing about how large a difference might be."""


def explained(
    evidence: Evidence, *, status: Status, reason: str, meaning: str = "", remedy: str = ""
) -> list[tuple[str, str]]:
    """Return what a verdict says, topic by topic: (topic, sentence).

    Topics, where there is something to say: verdict, found, test, compared, value, effect, sureness, means, do,
    changes. Nothing but the verdict is read.

    Example:
        >>> evidence = Evidence(0.95, Limit(warn=0.9, fail=0.98), 500, measurement="mean_cosine")
        >>> dict(explained(evidence, status="warn", reason="Alike."))["changes"]
        'below 0.9 it would be ok; at 0.98 or above it would fail'
    """
    topics = {
        "verdict": f"{status} ({STATUS_WORDS[status]})",
        "found": reason,
        "test": evidence.test or _comparison(evidence.limit),
        "compared": _compared(evidence),
        "value": _value(evidence),
        "effect": _effect(evidence),
        "sureness": "; ".join(_sureness(evidence)),
        "means": meaning if status != "ok" else "",
        "do": remedy,
        "changes": "; ".join(_changes(evidence, status)),
    }
    return [(topic, sentence) for topic, sentence in topics.items() if sentence]


def _comparison(limit: Limit | None) -> str:
    return "none: whatever the value is, it harms nothing here" if limit is None else "the value beside a fixed limit"


def _compared(evidence: Evidence) -> str:
    parts = [f"{evidence.rows:,} rows"]
    if evidence.effective_rows is not None:
        parts.append(f"worth {evidence.effective_rows:,.0f} independent ones")
    if evidence.windows is not None:
        parts.append(f"{evidence.windows:,.0f} windows speak together")
    return ", ".join(parts)


def _value(evidence: Evidence) -> str:
    if evidence.value is None:
        return f"none of {evidence.measurement}" if evidence.measurement else "none"
    unit = f" {evidence.unit}" if evidence.unit else ""
    name = f"{evidence.measurement} = " if evidence.measurement else ""
    error = "" if evidence.error is None else f" ± {_shown(evidence.error)}"
    return f"{name}{_shown(evidence.value)}{error}{unit}{_limits(evidence.limit)}"


def _limits(limit: Limit | None) -> str:
    if limit is None:
        return ""
    beyond = "or above" if limit.side == "above" else "or below"
    told = [
        f"{word} at {_shown(at)} {beyond}"
        for word, at in (("warns", limit.warn), ("fails", limit.fail))
        if at is not None
    ]
    return f"; {', '.join(told)}"


def _effect(evidence: Evidence) -> str:
    if evidence.effect is None:
        return ""
    name = f"{evidence.effect_name} = " if evidence.effect_name else ""
    least = "" if evidence.effect_limit is None else f"; it matters at {_shown(evidence.effect_limit)} and beyond"
    return f"{name}{_shown(evidence.effect)}{least}"


def _sureness(evidence: Evidence) -> Iterator[str]:
    if evidence.p_value is not None:
        level = "" if evidence.level is None else f", and {_shown(evidence.level)} is the level of one look"
        yield f"p = {_shown(evidence.p_value)}, {_often(evidence.p_value)} as much by chance{level}"
    if evidence.e_value is not None:
        yield f"e = {_shown(evidence.e_value)}: evidence against chance, which multiplies from window to window"
    if evidence.budget:
        yield f"false alarms that are accepted: {evidence.budget}"


def _often(p_value: float) -> str:
    if p_value >= HALF:
        return "most healthy windows differ"
    return f"one healthy window in {1 / p_value:,.0f} differs" if p_value > 0 else "no healthy window differs"


def _changes(evidence: Evidence, status: Status) -> Iterator[str]:
    """Yield what would have to be otherwise for another verdict."""
    if evidence.rows_needed is not None and evidence.rows < evidence.rows_needed:
        yield f"with {evidence.rows_needed:,.0f} rows there would be a full answer"
    if evidence.value is None or evidence.limit is None:
        if evidence.value is None and evidence.rows_needed is None:
            yield "a window in which there is a value"
        if evidence.value is not None and evidence.effect_limit is not None:
            yield f"an effect of {_shown(evidence.effect_limit)} or beyond would count, sure as it is"
        return
    yield from _crossings(status, evidence.limit)
    if status in ("warn", "fail") and evidence.effect_limit is not None:
        yield f"an effect that does not reach {_shown(evidence.effect_limit)} would be ok"
    if status == "warn" and evidence.effect_fail is not None:
        yield f"one of {_shown(evidence.effect_fail)} or beyond would fail"
    if status == "ok":
        yield from _rows_for_sure(evidence)


def _crossings(status: str, limit: Limit) -> Iterator[str]:
    healthy, beyond = ("below", "or above") if limit.side == "above" else ("above", "or below")
    first = limit.warn if limit.warn is not None else limit.fail
    if status in ("warn", "fail"):
        yield f"{healthy} {_shown(first)} it would be ok"
    if status == "ok" and limit.warn is not None:
        yield f"at {_shown(limit.warn)} {beyond} it would warn"
    if status in ("ok", "warn") and limit.fail is not None:
        yield f"at {_shown(limit.fail)} {beyond} it would fail"


def _rows_for_sure(evidence: Evidence) -> Iterator[str]:
    """Yield how many rows would show a difference as large as this, if it is one: `n (z_α / z_p)²`."""
    p_value, level = evidence.p_value, evidence.level
    if p_value is None or level is None or not level < p_value < HALF or not evidence.rows:
        return
    normal = NormalDist()
    times = (normal.inv_cdf(1 - level / 2) / normal.inv_cdf(1 - p_value / 2)) ** 2
    rows = _rounded(evidence.rows * times)
    yield f"a difference as large as this, if it is one, would be sure with about {rows} rows on both sides"


def _rounded(rows: float) -> str:
    """Return a number of rows to two digits, upwards."""
    unit = 10 ** max(0, math.floor(math.log10(rows)) - 1)
    return f"{math.ceil(rows / unit) * unit:,}"


def _shown(number: float | None) -> str:
    """Return a number to four digits, large whole ones with commas."""
    if number is None:
        return "none"
    return f"{number:,.0f}" if abs(number) >= 1_000 and abs(number) < 1e9 else f"{number:.4g}"
