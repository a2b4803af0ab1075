"""Judging: evidence becomes verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from embedwatch.core.boundary import Boundary
from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Status, Verdict

__all__ = ["Judge"]


class Judge:
    """Asks every Check that a Snapshot can answer, and turns its Evidence into a Verdict.

    A value that is missing is `unknown`, never `ok`; so is a Check that fails: its exception is counted at the
    boundary and judging goes on.

    Args:
        checks: the rules to ask, in the order of the verdicts.
        boundary: where exceptions of checks end.

    Example:
        >>> from embedwatch.core import Provenance, Space
        >>> Judge([]).judge(Snapshot(Space("m", "vectors"), (), Provenance(time=0.0, rows=0)))
        []
    """

    def __init__(self, checks: Iterable[Check], *, boundary: Boundary | None = None) -> None:
        self.checks = list(checks)
        self.boundary = boundary or Boundary()

    def judge(
        self,
        snapshot: Snapshot,
        reference: Any = None,
        history: History | None = None,
        why: Mapping[str, str] | None = None,
    ) -> list[Verdict]:
        """Return the verdicts of all checks that apply to the Snapshot.

        Args:
            snapshot: what is judged.
            reference: handed to the checks.
            history: Snapshots before it.
            why: name of a measurement to the reason why it is missing, which is that of what is `unknown` without it.
        """
        verdicts = []
        for check in self.checks:
            rows = snapshot.provenance.rows
            if not self.boundary.is_off("check", check.name):
                evidence = Evidence(None, check.limit, rows, "The check failed; see the log.")
                with self.boundary.guard("check", check.name):
                    if not check.applies(snapshot):
                        continue
                    evidence = check.evaluate(snapshot, reference, history)
                    told = [reason for name, reason in (why or {}).items() if name in check.reads]
                    if told and evidence.value is None:
                        evidence = replace(evidence, reason=told[0])
                    self.boundary.recover("check", check.name)
            else:
                evidence = Evidence(None, check.limit, rows, "The check failed too often and is off.")
            verdicts.append(_verdict(check, snapshot, evidence))
        return verdicts


def _verdict(check: Check, snapshot: Snapshot, evidence: Evidence) -> Verdict:
    status = _status(evidence)
    value, limit = evidence.value, evidence.limit
    return Verdict(
        check=check.name,
        title=check.title,
        space=snapshot.space,
        status=status,
        evidence=evidence,
        threshold=None if value is None or limit is None else limit.threshold(value),
        reason=evidence.reason or _reason(evidence),
        meaning=check.meaning,
        remedy=check.mitigation if status in ("warn", "fail") else "",
    )


def _status(evidence: Evidence) -> Status:
    if evidence.value is None or math.isnan(evidence.value):
        return "unknown"
    return "ok" if evidence.limit is None else evidence.limit.status(evidence.value)


def _reason(evidence: Evidence) -> str:
    if evidence.value is None:
        return "Not enough data for a value."
    healthy = "" if evidence.limit is None else f", healthy is {evidence.limit}"
    return f"{evidence.value:.4g}{healthy}; {evidence.rows:,} rows."
