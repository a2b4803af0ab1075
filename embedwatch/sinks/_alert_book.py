"""The alert book: what verdicts say should be known, beside what was told already."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from embedwatch.core.check import Check
from embedwatch.core.registry import registered
from embedwatch.core.snapshot import Space
from embedwatch.core.verdict import Verdict
from embedwatch.exposition import RUNBOOKS, alert_name
from embedwatch.sinks._alertmanager import Alert, Told

__all__ = ["AlertBook", "News"]

NEAR = "info"
"""Severity of what is past its warn limit only, as in the Prometheus rules."""
DEFAULT = "warning"
"""Severity of the failure of a check that is not known here."""
Key = tuple[Space, str]


@dataclass(slots=True)
class Entry:
    """One check of one Space: the alert that should be known and the one that is, its end, when it was told."""

    wanted: Alert | None = None
    told: Alert | None = None
    ended: float = 0.0
    told_at: float = 0.0
    tried: int = 0

    def want(self, alert: Alert | None, time: float) -> None:
        """Take over what a window says; what lasts keeps its beginning."""
        same = next((old for old in (self.wanted, self.told) if old and alert and old.labels == alert.labels), None)
        if same is None:
            self.ended = time
        self.wanted = replace(alert, starts=same.starts) if alert and same else alert

    @property
    def is_news(self) -> bool:
        """Whether something else should be known than is."""
        if self.wanted is None or self.told is None:
            return self.wanted is not self.told
        return self.wanted.labels != self.told.labels


@dataclass(frozen=True)
class News:
    """What is to be told about one check of one Space, and what is known then."""

    key: Key
    alerts: tuple[Told, ...]
    wanted: Alert | None


@dataclass
class AlertBook:
    """Compares what should be known with what is. A message that fails changes neither, and so is not lost.

    Not safe for several threads.

    Args:
        repeat: seconds after which an alert that lasts is told again.
        capacity: the most entries; a finding that has no room is dropped, and tried again with the next window.
        runbooks: address of the folder of the runbooks.
    """

    repeat: float
    capacity: int
    runbooks: str = RUNBOOKS
    _entries: dict[Key, Entry] = field(default_factory=dict)
    _telling: Key | None = None
    """What is being told now: it may arrive, and must not be forgotten meanwhile."""

    @property
    def is_full(self) -> bool:
        """Whether the next finding has no room."""
        return len(self._entries) >= self.capacity

    def take(self, verdicts: Iterable[Verdict], time: float) -> int:
        """Note verdicts of a window that ended at a time; return how many had no room. `unknown` changes nothing."""
        dropped = 0
        for verdict in verdicts:
            key = (verdict.space, verdict.check)
            if verdict.status in ("warn", "fail"):
                if key not in self._entries and self.is_full:
                    dropped += 1
                else:
                    self._entries.setdefault(key, Entry()).want(self._alert(verdict, time), time)
            elif verdict.status == "ok" and key in self._entries:
                self._entries[key].want(None, time)
                if key != self._telling:
                    self._forget(key)
        return dropped

    def _alert(self, verdict: Verdict, time: float) -> Alert:
        name = alert_name(verdict.check)
        labels = {"alertname": name, "severity": _severity(verdict), **verdict.space.labels(), "check": verdict.check}
        annotations = {
            "summary": verdict.meaning or verdict.title,
            "description": f"{verdict.space}: {verdict.title}: {verdict.reason}",
            "remedy": verdict.remedy,
            "runbook_url": f"{self.runbooks.rstrip('/')}/{name}.md",
        }
        return Alert(labels, {key: " ".join(text.split()) for key, text in annotations.items()}, time)

    def next(self, now: float) -> News | None:
        """Return what should be told next, that first which was tried least; `None` where nothing is due."""
        due = [key for key, entry in self._entries.items() if self._is_due(entry, now)]
        if not due:
            return None
        key = min(due, key=lambda key: self._entries[key].tried)
        entry = self._entries[key]
        entry.tried += 1
        self._telling = key
        alerts: list[Told] = []
        if entry.told is not None and entry.is_news:
            alerts.append((entry.told, entry.ended))
        if entry.wanted is not None:
            alerts.append((entry.wanted, None))
        return News(key, tuple(alerts), entry.wanted)

    def waiting(self, now: float) -> int:
        """Return how many messages are due."""
        return sum(self._is_due(entry, now) for entry in self._entries.values())

    def _is_due(self, entry: Entry, now: float) -> bool:
        return entry.is_news or (entry.told is not None and now - entry.told_at >= self.repeat)

    def delivered(self, news: News, now: float) -> None:
        """Note that it was told."""
        self._telling = None
        entry = self._entries[news.key]
        entry.told, entry.told_at, entry.tried = news.wanted, now, 0
        self._forget(news.key)

    def failed(self, news: News) -> None:
        """Note that it could not be told; it is due again, unless nobody needs to know any more."""
        self._telling = None
        self._forget(news.key)

    def _forget(self, key: Key) -> None:
        entry = self._entries[key]
        if entry.wanted is None and entry.told is None:
            del self._entries[key]


def _severity(verdict: Verdict) -> str:
    if verdict.status == "warn":
        return NEAR
    check: type[Check] | None = registered(Check).get(verdict.check)
    return DEFAULT if check is None else check.severity
