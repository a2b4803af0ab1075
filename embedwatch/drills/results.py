"""What a drill found, as plain values: no tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

__all__ = ["CONTROL", "DRILL_SCHEMA", "Drill", "Outcome", "Trial", "TrialStatus"]

DRILL_SCHEMA = 1
"""Version of the JSON that a Drill writes."""
CONTROL = "healthy"
"""What the trial is called into which no fault was put."""
SURE = 0.95
"""Share of the repeats in which a fault must be found, and healthy rows left alone."""
TrialStatus = Literal["ok", "fired", "unknown", "found", "noticed", "missed", "blind", "impossible"]
"""Of healthy rows: `ok`, `fired`, `unknown`. Of a fault: `found`; `noticed` where a check is sure of a difference and
calls it too small to matter; `missed`; `blind` where no check that could see it runs here; `impossible` where it cannot
be made of these rows."""


@dataclass(frozen=True)
class Outcome:
    """One run of one trial.

    Args:
        seed: with which it can be had again.
        rows: how many rows were looked at when the first check fired, or in all.
        fired: the checks that fired, each with the rows that it needed.
        rightly: whether one of them should.
        noticed: the checks that were sure of a difference and called it too small, each with the rows that it needed.
        status: of this run.
        told: what the check `what_changed` called it; empty where it named nothing.
        reason: what the check that should have fired said last, or why nothing could be tried.
    """

    seed: int
    rows: int
    fired: tuple[tuple[str, int], ...]
    rightly: bool
    status: TrialStatus
    noticed: tuple[tuple[str, int], ...] = ()
    told: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "seed": self.seed,
            "rows": self.rows,
            "fired": dict(self.fired),
            "rightly": self.rightly,
            "noticed": dict(self.noticed),
            "status": self.status,
            "told": self.told,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Trial:
    """A fault at one strength, or none, in every repeat.

    Args:
        fault: its name.
        title: in a few words.
        strength: how strong; 0 for healthy rows.
        told: the strength as people say it.
        expected: checks that should find it.
        outcomes: of each repeat.
        unseen: why it may not be found.
    """

    fault: str
    title: str
    strength: float
    told: str
    expected: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    unseen: str = ""

    @property
    def status(self) -> TrialStatus:
        """What 95 % of the repeats say, `found` or `ok` for healthy rows; else the most frequent of the others."""
        counts = Counter(outcome.status for outcome in self.outcomes)
        good: TrialStatus = "ok" if self.fault == CONTROL else "found"
        needed = SURE * len(self.outcomes)
        if counts[good] >= needed:
            return good
        if counts["noticed"] and counts[good] + counts["noticed"] >= needed:
            return "noticed"
        others = [(count, status) for status, count in counts.items() if status not in (good, "noticed")]
        return max(others)[1]

    @property
    def hits(self) -> int:
        """Repeats in which a check fired."""
        return sum(bool(outcome.fired) for outcome in self.outcomes)

    @property
    def rightly(self) -> int:
        """Repeats in which a check fired that should."""
        return sum(outcome.rightly for outcome in self.outcomes)

    @property
    def rows(self) -> int | None:
        """Rows after which the first check fired, the median of the repeats in which one did."""
        found = [outcome.rows for outcome in self.outcomes if outcome.fired]
        return int(median(found)) if found else None

    @property
    def noticed(self) -> int:
        """Repeats in which a check was sure of a difference, whether or not one fired."""
        return sum(bool(outcome.noticed) or outcome.rightly for outcome in self.outcomes)

    def noticed_by(self) -> dict[str, int]:
        """Return the checks that were sure of a difference and called it small, in how many repeats."""
        return dict(Counter(check for outcome in self.outcomes for check, _ in outcome.noticed).most_common())

    def checks(self) -> dict[str, int]:
        """Return the checks that fired, in how many repeats, the most frequent first."""
        return dict(Counter(check for outcome in self.outcomes for check, _ in outcome.fired).most_common())

    def rows_of(self, check: str) -> int | None:
        """Return after how many rows a check fired, the median of the repeats in which it did."""
        found = [rows for outcome in self.outcomes for name, rows in outcome.fired if name == check]
        return int(median(found)) if found else None

    def names(self) -> dict[str, int]:
        """Return what it was called by `what_changed`, in how many repeats, the most frequent first."""
        return dict(Counter(outcome.told for outcome in self.outcomes if outcome.told).most_common())

    def reason(self) -> str:
        """Return why it was not found, or what was said of healthy rows: of the last repeat that says something."""
        wanted = [each.reason for each in self.outcomes if each.status == self.status and each.reason]
        return wanted[-1] if wanted else ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "fault": self.fault,
            "title": self.title,
            "strength": self.strength,
            "told": self.told,
            "expected": list(self.expected),
            "status": self.status,
            "found": self.hits,
            "found_rightly": self.rightly,
            "noticed": self.noticed,
            "repeats": len(self.outcomes),
            "rows": self.rows,
            "checks": self.checks(),
            "names": self.names(),
            "unseen": self.unseen,
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
        }


@dataclass(frozen=True)
class Drill:
    """What a drill found: healthy rows first, then each fault.

    Args:
        label: the source.
        fingerprint: of its content.
        dimension: D.
        source_rows: rows that it has.
        reference_rows: of these, in the reference.
        window: rows of the longest window.
        block: rows that stayed together when they were dealt to reference and window.
        length: for how many rows the source keeps to its topic.
        level: share of healthy looks at which a check may fire.
        control: healthy rows against the reference.
        trials: of faults.
        checks: names of the checks that were asked.
        pairing: of these, those that compare items with themselves, as a canary does.
        notes: what a reader must know.
        seconds: that it took.
        errors: exceptions of ours that were counted: (stage, name, number).
    """

    label: str
    fingerprint: str
    dimension: int
    source_rows: int
    reference_rows: int
    window: int
    block: int
    length: float
    level: float
    control: Trial
    trials: tuple[Trial, ...]
    checks: tuple[str, ...]
    pairing: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float
    errors: tuple[tuple[str, str, int], ...] = ()

    @property
    def status(self) -> Literal["ok", "missed", "fired", "unknown"]:
        """What healthy rows say where they are not `ok`, else `missed` where a fault was, else `ok`."""
        if self.control.status != "ok":
            return "fired" if self.control.status == "fired" else "unknown"
        return "missed" if any(trial.status == "missed" for trial in self.trials) else "ok"

    def counts(self) -> dict[str, int]:
        """Return the number of trials of faults by status."""
        return dict(Counter(trial.status for trial in self.trials))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "schema": DRILL_SCHEMA,
            "status": self.status,
            "counts": self.counts(),
            "source": {
                "label": self.label,
                "fingerprint": self.fingerprint,
                "dimension": self.dimension,
                "rows": self.source_rows,
                "notes": list(self.notes),
            },
            "reference_rows": self.reference_rows,
            "window": self.window,
            "block": self.block,
            "decay_length": self.length,
            "level": self.level,
            "checks": list(self.checks),
            "pairing": list(self.pairing),
            "control": self.control.to_json(),
            "trials": [trial.to_json() for trial in self.trials],
            "errors": [{"stage": stage, "name": name, "count": count} for stage, name, count in self.errors],
            "seconds": self.seconds,
        }
