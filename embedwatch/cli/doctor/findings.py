"""What the doctor finds, one line each."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Finding", "State", "worst"]

State = Literal["ok", "info", "warn", "fail"]
ORDER: tuple[State, ...] = ("ok", "warn", "fail")


class Finding(NamedTuple):
    """One thing that was looked at.

    Attributes:
        part: of the installation: `packages`, `extras`, `machine` or `trial`.
        name: of the thing.
        status: `ok`; `info` where there is nothing to judge; `warn`; `fail`.
        reason: what was seen.
        remedy: what to do; empty where nothing is to be done.
    """

    part: str
    name: str
    status: State
    reason: str
    remedy: str = ""


def worst(findings: list[Finding]) -> State:
    """Return the gravest status; `info` is no worse than `ok`.

    Example:
        >>> worst([Finding("machine", "torch", "ok", ""), Finding("machine", "fork", "warn", "")])
        'warn'
    """
    states: list[State] = [finding.status for finding in findings if finding.status != "info"]
    return max(states, key=ORDER.index, default=ORDER[0])
