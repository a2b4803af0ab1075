"""Gathered: what the parcels of a window say of where it comes from, and what no Statistic of it delivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from embedwatch.checks.drift import FAMILY, P_VALUE
from embedwatch.core.measurement import Measurement
from embedwatch.parcels import Parcel
from embedwatch.references import compared_statistics

__all__ = ["COMPARED", "Gathered", "compared_names"]

MOST_NOTES = 20
"""Sentences about one window that are kept."""
SEVERAL = "Senders with different fingerprints are in this window."
OTHERS = "Senders compare with different references; drift is told of the gravest window alone."
COMPARED = "windows_compared"
"""Of the coverage: windows that senders compared with their reference, of which the gravest is shown."""


@dataclass
class Gathered:
    """What the parcels of a window say of where it comes from."""

    step: int | None = None
    fingerprint: str = ""
    reference: str = ""
    """What the rows were compared with where they were seen."""
    coverage: Counter[str] = field(default_factory=Counter)
    notes: dict[str, None] = field(default_factory=dict)
    single: tuple[Measurement, ...] = ()
    """What no Statistic delivers: of the sender that came last, since it cannot be merged."""
    compared: tuple[Measurement, ...] = ()
    """What comparing with a reference came to where the rows were seen: of the gravest window."""

    def add(self, parcel: Parcel, more: Sequence[Measurement]) -> None:
        """Add what a parcel says."""
        steps = [step for step in (self.step, parcel.step) if step is not None]
        self.step = max(steps, default=None)
        if self.fingerprint and parcel.fingerprint not in ("", self.fingerprint):
            self._note(SEVERAL)
        self.fingerprint = parcel.fingerprint or self.fingerprint
        self.coverage.update(parcel.coverage)
        for note in parcel.notes:
            self._note(note)
        names = compared_names()
        self.single = tuple(each for each in more if each.name not in names) or self.single
        self._compare(parcel, tuple(each for each in more if each.name in names))

    def _compare(self, parcel: Parcel, found: tuple[Measurement, ...]) -> None:
        """Keep the gravest of what senders compared, and count how many there were to choose from."""
        if not found:
            return
        p_value, before = _p_value(found), _p_value(self.compared)
        if p_value is not None and COMPARED not in parcel.coverage:  # a window that was saved has its count
            self.coverage[COMPARED] += 1
        if self.reference and parcel.reference not in ("", self.reference):
            self._note(OTHERS)
        if not self.compared or before is None or (p_value is not None and p_value < before):
            self.compared, self.reference = found, parcel.reference

    def _note(self, note: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes[note] = None

    @property
    def more(self) -> tuple[Measurement, ...]:
        """What no Statistic delivers, as it came."""
        return (*self.single, *self.compared)

    def told(self) -> tuple[Measurement, ...]:
        """Return the same, with p-values for having chosen the gravest of so many windows: that many times as large."""
        return (*self.single, *_corrected(self.compared, self.coverage[COMPARED]))

    def provenance(self) -> dict[str, Any]:
        """Return it as a Snapshot takes it, without the reference."""
        return {
            "step": self.step,
            "fingerprint": self.fingerprint,
            "coverage": dict(self.coverage),
            "notes": tuple(self.notes),
        }

    def closing(self) -> dict[str, Any]:
        """Return the provenance of a window that closes, the reference too."""
        found, looks = self.provenance(), self.coverage[COMPARED]
        if looks > 1:
            gravest = f"Drift is that of the gravest of {looks} windows of senders, its p-values times {looks}."
            found["notes"] = (*found["notes"], gravest)
        return {**found, "reference": self.reference}


def _p_value(found: Iterable[Measurement]) -> float | None:
    return next((each.number for each in found if each.name == P_VALUE), None)


def _corrected(found: Iterable[Measurement], looks: int) -> Iterator[Measurement]:
    """Yield measurements, p-values times the number of looks: `min(1, k p)` holds whatever they have in common."""
    for each in found:
        if each.name in (P_VALUE, FAMILY) and each.number is not None:
            yield replace(each, value=min(1.0, each.number * max(1, looks)))
        else:
            yield each


@lru_cache(maxsize=1)
def compared_names() -> frozenset[str]:
    """Return the names of what only rows beside a reference have."""
    return frozenset(metric.name for kind in compared_statistics().values() for metric in kind.metrics)
