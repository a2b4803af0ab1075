"""Verdict: what judging makes of what a Check found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from embedwatch.core.errors import InputError
from embedwatch.core.evidence import STATUSES, Evidence, Limit, Status, finite, number, text
from embedwatch.core.explaining import explained
from embedwatch.core.snapshot import Space

__all__ = ["STATUSES", "Evidence", "Limit", "Status", "Verdict", "worst"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of one Check about one Space: status, the value beside its limit, why it matters, what to do."""

    check: str
    title: str
    space: Space
    status: Status
    evidence: Evidence
    threshold: float | None
    reason: str
    meaning: str
    remedy: str

    def topics(self) -> list[tuple[str, str]]:
        """Return in plain words what was compared, what it means, what to do, and what would change the verdict."""
        return explained(
            self.evidence, status=self.status, reason=self.reason, meaning=self.meaning, remedy=self.remedy
        )

    def explain(self) -> str:
        """Return the topics as lines."""
        return "\n".join(f"{topic}: {sentence}" for topic, sentence in self.topics())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; the evidence stands among the other fields."""
        evidence = self.evidence.to_json()
        found = evidence.pop("reason")
        data = {
            "check": self.check,
            "title": self.title,
            "space": self.space.labels(),
            "status": self.status,
            **evidence,
            "threshold": finite(self.threshold),
            "reason": self.reason,
            "meaning": self.meaning,
            "remedy": self.remedy,
        }
        return data if found == self.reason else {**data, "evidence_reason": found}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Read what `to_json` wrote.

        Raises:
            InputError: if it is not a verdict.
        """
        try:
            if data["status"] not in STATUSES:
                raise InputError(f"`status` must be one of {', '.join(STATUSES)}, got {data['status']!r}; correct it")
            return cls(
                check=text(data, "check"),
                title=text(data, "title"),
                space=Space(**data["space"]),
                status=data["status"],
                evidence=Evidence.from_json({**data, "reason": data.get("evidence_reason", data["reason"])}),
                threshold=number(data, "threshold"),
                reason=text(data, "reason"),
                meaning=text(data, "meaning"),
                remedy=text(data, "remedy"),
            )
        except InputError:
            raise
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a verdict: {error!r}; give the JSON that embedwatch wrote") from error


def worst(statuses: Sequence[Status]) -> Status:
    """Return the gravest of some statuses; `unknown` for none, since nothing was judged.

    Example:
        >>> worst(["ok", "warn", "unknown"])
        'warn'
        >>> worst([])
        'unknown'
    """
    return max(statuses, key=STATUSES.index, default="unknown")
