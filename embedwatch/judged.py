"""Judged: one Space as somebody found it, with its verdicts and the exhibits behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Verdict

__all__ = ["Judged", "cited"]


@dataclass(frozen=True)
class Judged:
    """One Space as an audit found it."""

    snapshot: Snapshot
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "snapshot": self.snapshot.to_json(),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "exhibits": [exhibit.to_json() for exhibit in self.exhibits],
            "seconds": self.seconds,
        }


def cited(verdicts: Iterable[Verdict]) -> Sequence[str]:
    """Return the names of the exhibits that a verdict cites which is not ok."""
    grave = [verdict for verdict in verdicts if verdict.status in ("warn", "fail")]
    return sorted({name for verdict in grave for name in verdict.evidence.exhibits})
