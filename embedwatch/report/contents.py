"""What a report tells, whatever it comes from and however it is written: Report, Section, Chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from embedwatch.core.exhibit import Exhibit
from embedwatch.core.measurement import Measurement
from embedwatch.core.snapshot import ROLES, Provenance, Space
from embedwatch.core.verdict import STATUSES, Status, Verdict, worst

__all__ = ["Chart", "ChartKind", "Report", "Section"]

ChartKind = Literal["line", "bars", "heat", "map"]


@dataclass(frozen=True)
class Chart:
    """One picture, without its colours: those are of the page.

    Args:
        name: snake case; what verdicts cite it by.
        kind: how it is drawn: `line`, `bars`, `heat` or `map`.
        title: a few words.
        caption: one sentence that says what one sees.
        data: plain JSON: axes, series or cells. `charts.js` says which fields each kind has.
        minor: worth drawing only for who opens what is folded away.
    """

    name: str
    kind: ChartKind
    title: str
    caption: str
    data: Mapping[str, Any]
    minor: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"name": self.name, "kind": self.kind, "title": self.title, **self.data}


@dataclass(frozen=True)
class Section:
    """One Space: what was measured, what was judged, and the evidence.

    Args:
        space: what was judged.
        provenance: where it comes from.
        measurements: the newest of each.
        verdicts: the newest of each check.
        exhibits: evidence; each becomes a chart or a table.
        charts: pictures that are made of more than one exhibit: maps, courses.
    """

    space: Space
    provenance: Provenance
    measurements: tuple[Measurement, ...]
    verdicts: tuple[Verdict, ...]
    exhibits: tuple[Exhibit, ...] = ()
    charts: tuple[Chart, ...] = ()

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.verdicts if verdict.status != "unknown"])

    @property
    def role(self) -> str:
        """What sort of place it is, in words."""
        return ROLES.get(self.provenance.role, "")


@dataclass(frozen=True)
class Report:
    """Everything that one page tells.

    Args:
        title: what was looked at.
        kind: what was done: `audit`, `comparison`, `pair` or `run`.
        sections: Space by Space.
        result: JSON of the command behind it, as that prints it.
        lead: sentences that stand before everything else.
        charts: pictures of several Spaces together.
        errors: exceptions of ours that were counted: (stage, name, number).
    """

    title: str
    kind: str
    sections: tuple[Section, ...]
    result: Mapping[str, Any] = field(default_factory=dict)
    lead: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    errors: tuple[tuple[str, str, int], ...] = ()

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts of all Spaces."""
        return [verdict for section in self.sections for verdict in section.verdicts]

    @property
    def status(self) -> Status:
        """The gravest verdict; `unknown` where nothing could be judged."""
        return worst([verdict.status for verdict in self.verdicts if verdict.status != "unknown"])

    def counts(self) -> dict[str, int]:
        """Return the number of verdicts by status, the gravest first."""
        found = Counter(verdict.status for verdict in self.verdicts)
        return {status: found[status] for status in reversed(STATUSES)}
