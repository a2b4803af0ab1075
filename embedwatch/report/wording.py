"""How numbers and names are written for people in every format of a report."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

from embedwatch.core.exhibit import NO_ID
from embedwatch.core.measurement import Histogram, Measurement
from embedwatch.core.snapshot import Provenance
from embedwatch.core.verdict import Verdict

__all__ = ["MARKS", "clock", "from_where", "in_words", "number", "one_line", "value_of", "value_of_verdict"]

DIGITS = 4
LONGEST = 600
"""Characters of a cell, beyond which it is cut."""
LEAST_PLAIN, MOST_PLAIN = 1e-4, 1e7
"""Between these a number is written out; beyond, with an exponent."""
MARKS = {"fail": "✕", "warn": "▲", "unknown": "?", "ok": "✓"}
"""A sign for each status, so that colour says nothing alone."""
HIDDEN = {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}
"""Characters that turn the direction of what follows them."""


def number(value: float | None, digits: int = DIGITS) -> str:
    """Return a number as people read it; a dash where there is none.

    Example:
        >>> number(1234567), number(1234.5), number(0.123456), number(2.5e-7), number(None), number(1e12)
        ('1,234,567', '1,234', '0.1235', '2.5e-07', '–', '1e+12')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < MOST_PLAIN):
        return f"{int(value):,}"
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    if value and not LEAST_PLAIN <= abs(value) < MOST_PLAIN:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def in_words(name: str) -> str:
    """Return a snake-case name in words.

    Example:
        >>> in_words("norm_distribution")
        'norm distribution'
    """
    return name.replace("_", " ")


def one_line(value: Any) -> str:
    r"""Return a cell as one line of text: control characters shown, long ones cut.

    Example:
        >>> one_line("a\nb\x00"), one_line(None), one_line(0.5)
        ('a␤b␀', '–', '0.5')
    """
    if value is None:
        return "–"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "–" if value == NO_ID and isinstance(value, int) else number(value)
    text = "".join(map(_shown, str(value)[: LONGEST + 1]))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _shown(character: str) -> str:
    code = ord(character)
    if code < ord(" "):
        return chr(0x2400 + code) if character != "\n" else "␤"
    return "�" if character in HIDDEN or 0xD800 <= code <= 0xDFFF else character


def value_of(measurement: Measurement) -> str:
    """Return the value of a measurement with its unit."""
    if isinstance(measurement.value, Histogram):
        return f"{measurement.value.n:,} values"
    text = number(measurement.number, measurement.metric.digits + 1)
    return f"{text} {measurement.metric.unit}".strip() if measurement.number is not None else text


def value_of_verdict(verdict: Verdict) -> str:
    """Return the value that was judged beside what is healthy."""
    evidence = verdict.evidence
    if evidence.value is None:
        return "no value"
    unit = f" {evidence.unit}" if evidence.unit else ""
    healthy = "" if evidence.limit is None else f" (healthy {evidence.limit})"
    return f"{number(evidence.value)}{unit}{healthy}"


def from_where(provenance: Provenance) -> list[str]:
    """Return in a few words where measurements come from."""
    noun = "step" if provenance.role == "training" else "row"
    counted = provenance.rows > 1 or provenance.role in ("", "vectors", "training")  # a model that is examined is one
    said = [f"{provenance.rows:,} {noun}{'' if provenance.rows == 1 else 's'}" if counted else ""]
    said += [f"{provenance.dimension:,} dimensions" if provenance.dimension else ""]
    said += [f"step {provenance.step:,}" if provenance.step is not None else ""]
    said += [f"fingerprint {provenance.fingerprint[:8]}" if provenance.fingerprint else ""]
    said += [f"reference {provenance.reference[:8]}" if provenance.reference else ""]
    return [each for each in said if each]


def clock(seconds: float) -> str:
    """Return a time in UTC.

    Example:
        >>> clock(0.0)
        '1970-01-01 00:00 UTC'
    """
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"
