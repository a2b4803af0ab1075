"""Changes: which verdicts are news, for whoever tells people only what is new."""

from __future__ import annotations

from collections.abc import Iterable

from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Status, Verdict

__all__ = ["Changes"]


class Changes:
    """Remembers the last status of each check of each Space.

    A check is `ok` before it was first heard of, so a healthy start is no news. `unknown` is none either: not enough
    data says nothing, and what was known before still holds.

    Example:
        >>> from embedwatch.core.verdict import Evidence
        >>> def verdict(status):
        ...     space = Space("model", "table")
        ...     return Verdict("zero_rows", "zero rows", space, status, Evidence(None), None, "", "", "")
        >>> changes, told = Changes(), []
        >>> for status in ("ok", "warn", "unknown", "warn", "fail", "ok"):
        ...     told += [verdict.status for verdict in changes.among([verdict(status)])]
        ...     changes.note([verdict(status)])
        >>> told
        ['warn', 'fail', 'ok']
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Space, str], Status] = {}

    def among(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """Return those whose status is known to be another than the last."""
        return [
            verdict
            for verdict in verdicts
            if verdict.status not in ("unknown", self._known.get((verdict.space, verdict.check), "ok"))
        ]

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """Remember them."""
        for verdict in verdicts:
            if verdict.status != "unknown":
                self._known[verdict.space, verdict.check] = verdict.status
