"""Evidence: what a Check found, beside the limit at which it turns unhealthy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from embedwatch.core.errors import InputError, UsageError

__all__ = ["STATUSES", "Evidence", "Limit", "Status", "finite", "number", "text"]

Status = Literal["ok", "unknown", "warn", "fail"]
STATUSES: tuple[Status, ...] = ("ok", "unknown", "warn", "fail")
"""From harmless to grave. `unknown` is never `ok`: nobody looked, or there was too little to see."""
OPTIONAL = (
    "effect",
    "effect_limit",
    "effect_fail",
    "p_value",
    "e_value",
    "level",
    "error",
    "effective_rows",
    "rows_needed",
    "windows",
)
"""Numbers of Evidence that JSON holds only where they are known."""
OPTIONAL_TEXTS = ("test", "effect_name", "budget")
"""Texts of Evidence that JSON holds only where there is one."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a value turns from healthy to `warn` and to `fail`. A value at the limit has crossed it.

    Example:
        >>> Limit(warn=0.9, fail=0.98).status(0.95)
        'warn'
        >>> Limit(warn=0.1, fail=0.03, side="below").status(0.5)
        'ok'
        >>> str(Limit(warn=0.1, fail=0.03, side="below"))
        '> 0.1'
    """

    warn: float | None = None
    fail: float | None = None
    side: Literal["above", "below"] = "above"

    def __post_init__(self) -> None:
        if self.warn is None and self.fail is None:
            raise UsageError("a limit must have `warn` or `fail`, got neither; give at least one")
        if self.warn is not None and self.fail is not None and not self._crossed(self.fail, self.warn):
            raise UsageError(f"`fail` must lie beyond `warn`, got warn={self.warn} and fail={self.fail} ({self.side})")

    def _crossed(self, value: float, threshold: float | None) -> bool:
        if threshold is None:
            return False
        return value >= threshold if self.side == "above" else value <= threshold

    def status(self, value: float) -> Status:
        """Return the status of a value."""
        if self._crossed(value, self.fail):
            return "fail"
        return "warn" if self._crossed(value, self.warn) else "ok"

    def threshold(self, value: float) -> float:
        """Return the threshold that the value crossed, or the first one that it has not."""
        known = [threshold for threshold in (self.warn, self.fail) if threshold is not None]
        crossed = [threshold for threshold in known if self._crossed(value, threshold)]
        return crossed[-1] if crossed else known[0]

    def __str__(self) -> str:
        first = self.warn if self.warn is not None else self.fail
        return f"{'<' if self.side == 'above' else '>'} {first:g}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"warn": self.warn, "fail": self.fail, "side": self.side}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Limit:
        """Read what `to_json` wrote."""
        if data["side"] not in ("above", "below"):
            raise InputError(
                f"`side` must be above or below, got {data['side']!r}; give the JSON that embedwatch wrote"
            )
        return cls(number(data, "warn"), number(data, "fail"), data["side"])


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a Check found: the value beside its limit, and how sure it is.

    Args:
        value: the number that is judged; `None` makes the verdict `unknown`.
        limit: where it turns unhealthy; `None` with a value means that nothing can be wrong here.
        rows: how many rows the value rests on.
        reason: one sentence about this very value; empty lets judging say value and limit.
        measurement: name of the measurement that the value is, where it is one.
        unit: of the value.
        effect: size of the change in a unit that people can weigh.
        effect_name: name of the measurement that the effect is.
        effect_limit: from where on the effect matters.
        effect_fail: from where on it is grave.
        p_value, e_value: for comparisons with a null distribution.
        test: what gave them, in a few words.
        level: share of healthy windows that may be called different, where one look decides.
        budget: false alarms that are accepted over time, where many looks decide.
        effective_rows: how many independent rows the rows are worth.
        rows_needed: how many rows a full answer needs, where these are too few.
        windows: how many windows speak together.
        error: standard error of the value.
        exhibits: names of the exhibits that show who is to blame.
    """

    value: float | None
    limit: Limit | None = None
    rows: int = 0
    reason: str = ""
    measurement: str = ""
    unit: str = ""
    effect: float | None = None
    p_value: float | None = None
    e_value: float | None = None
    error: float | None = None
    exhibits: tuple[str, ...] = ()
    effect_name: str = ""
    effect_limit: float | None = None
    effect_fail: float | None = None
    test: str = ""
    level: float | None = None
    budget: str = ""
    effective_rows: float | None = None
    rows_needed: float | None = None
    windows: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; a number that is not finite becomes null, since JSON has none."""
        optional = {name: finite(getattr(self, name)) for name in OPTIONAL}
        return {
            "measurement": self.measurement,
            "value": finite(self.value),
            "unit": self.unit,
            "limit": None if self.limit is None else self.limit.to_json(),
            "healthy": "" if self.limit is None else str(self.limit),
            "rows": self.rows,
            "reason": self.reason,
            "exhibits": list(self.exhibits),
            **{name: value for name, value in optional.items() if value is not None},
            **{name: getattr(self, name) for name in OPTIONAL_TEXTS if getattr(self, name)},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evidence:
        """Read what `to_json` wrote."""
        limit = data.get("limit")
        optional: dict[str, Any] = {name: number(data, name) for name in OPTIONAL}
        optional |= {name: text(data, name) for name in OPTIONAL_TEXTS if name in data}
        return cls(
            value=number(data, "value"),
            limit=None if limit is None else Limit.from_json(limit),
            rows=int(data["rows"]),
            reason=text(data, "reason"),
            measurement=text(data, "measurement"),
            unit=text(data, "unit"),
            exhibits=tuple(map(str, data["exhibits"])),
            **optional,
        )


def finite(value: float | None) -> float | None:
    """Return a number that JSON can hold, or `None`."""
    return None if value is None or not math.isfinite(value) else value


def number(data: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number, or `None` where there is none."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise InputError(f"`{name}` must be a number or null, got {value!r}; give the JSON that embedwatch wrote")
    return finite(value)


def text(data: Mapping[str, Any], name: str) -> str:
    """Return a text; refuses anything else."""
    value = data[name]
    if not isinstance(value, str):
        raise InputError(f"`{name}` must be text, got {value!r}; give the JSON that embedwatch wrote")
    return value
