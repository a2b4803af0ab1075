"""Vectors of one model, mapped into the space of another, should keep finding what they found there."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

__all__ = ["AlignmentLost"]

MEASURES = {
    "pair_overlap_ratio": "neighbours that mapped vectors find",
    "pair_mutual_ratio": "neighbours that both spaces agree on",
}
LEAST = 0.1
"""Share of neighbours at the beginning from which on losing some of them says something."""
LEAST_ROWS = 24
NO_BETTER = 3.0
"""Times chance: what finds no more than that finds nothing."""


class AlignmentLost(Check):
    """A map between two spaces keeps what it kept when it was first looked at.

    The value is the share of neighbours lost since the first Snapshot: of those that mapped vectors find as they stand,
    and of those that both spaces agree on whatever the coordinates; the larger loss. The texts are the same each time,
    so that nothing is lost by chance.
    """

    name = "alignment_lost"
    title = "map between two spaces"
    reads = ("pair_overlap_ratio", "pair_mutual_ratio", "pair_rows")
    weighs = ("pair_mutual_null_ratio", "pair_nonfinite_rows", "pair_zero_rows", "pair_sample_rows")
    roles = ("pairs",)
    limit = Limit(warn=0.05, fail=0.2)
    exhibits = ("pair_served_worst",)
    severity = "critical"
    meaning = "Vectors that are mapped from one model's space into another's find less there than when they began."
    impact = "Searches over the bridge between an old index and a new model return worse results, without any error."
    diagnosis = (
        "One of the two models, its pooling, prefix, normalisation or precision changed, or another map is in use. "
        "Check each model by itself with `embedwatch canary check`."
    )
    mitigation = (
        "Undo the change, or fit the map again with `embedwatch align fit` on pairs of the present models; better, end "
        "the bridge and embed all rows again."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of neighbours lost since the first Snapshot."""
        del reference
        rows = int(snapshot.number("pair_rows") or 0)
        lost = sum(snapshot.number(name) or 0 for name in ("pair_nonfinite_rows", "pair_zero_rows"))
        if rows < LEAST_ROWS and not lost:
            return Evidence(None, self.limit, rows, f"{rows} pairs are too few, needs {LEAST_ROWS}.")
        if lost > 0:
            share = lost / (lost + rows)
            told = f"{lost:.0f} of {lost + rows:.0f} vectors are NaN, Inf or zero."
            return Evidence(share, Limit(fail=1e-9), rows, told, exhibits=self.exhibits)
        first = next(iter(history), None) if history is not None else None
        found = {name: snapshot.number(name) for name in MEASURES}
        overlap, chance = found["pair_overlap_ratio"], snapshot.number("pair_mutual_null_ratio") or 0.0
        if overlap is None and found["pair_mutual_ratio"] is None:
            return Evidence(None, self.limit, rows, "No neighbours could be compared.")
        if first is None:
            if overlap is not None and overlap <= NO_BETTER * chance:
                told = f"Mapped vectors find {overlap:.1%} of the neighbours, by chance {chance:.1%}: no map holds."
                return Evidence(1.0, self.limit, rows, told, exhibits=self.exhibits)
            return Evidence(0.0, self.limit, rows, "Looked at first: later ones are compared with this.")
        value, told = 0.0, "As at the beginning."
        for name, words in MEASURES.items():
            before, now = first.number(name), found[name]
            if before is not None and now is not None and before >= LEAST and (before - now) / before > value:
                value = (before - now) / before
                told = f"Of the {words} {value:.1%} are lost: {before:.3f} at the beginning, {now:.3f} now."
        return Evidence(value, self.limit, rows, told, exhibits=self.exhibits)
