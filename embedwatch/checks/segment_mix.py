"""Segments should have the shares of the rows that they had."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import Check
from embedwatch.core.errors import UsageError
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

P_VALUE, DISTANCE = "segment_mix_p_value", "segment_mix_distance_ratio"
LEVEL = 0.01
"""Share of healthy pairs that may be called different."""
MATTERS = 0.05
"""Share of rows in another segment from which the mix counts as changed."""


class SegmentMix(Check):
    """Segments have the shares that they had, but for chance, or for less than matters.

    It warns where both hold: the difference is surer than the level, and at least 5 % of the rows would have to change
    their segment. It never fails: another mix is other traffic, not a broken model.

    Args:
        level: share of healthy pairs that may be called different.
    """

    name = "segment_mix"
    title = "mix of segments"
    reads = (P_VALUE, DISTANCE)
    limit = Limit(warn=LEVEL, side="below")
    exhibits = ("segment_shares",)
    meaning = "Segments have other shares of the rows than they had: more of one sort of input, less of another."
    impact = (
        "Numbers of the whole change with the mix alone, though no segment did; what was tuned for the old mix may not "
        "serve the new one."
    )
    diagnosis = "See which shares changed; compare segment by segment, and the whole at the old shares."
    mitigation = "If the new mix will stay, take a new reference; if not, find out which sender stopped or came."

    def __init__(self, *, level: float = LEVEL) -> None:
        if not 0 < level < 1:
            raise UsageError(f"`level` must be above 0 and below 1, got {level!r}; 0.01 is usual")
        self.level = level

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the p-value beside the level, which is there where enough rows changed their segment."""
        del reference, history
        p_value, distance = snapshot.number(P_VALUE), snapshot.number(DISTANCE)
        number = snapshot.number("segment_mix_rows")
        rows = snapshot.provenance.rows if number is None else int(number)
        level = Limit(warn=self.level, side="below")
        if p_value is None or distance is None:
            reason = f"{rows:,} rows are too few: a stream keeps to a segment for long beside its length."
            return Evidence(None, level, rows, reason, P_VALUE)
        known: dict[str, Any] = {
            "measurement": P_VALUE,
            "p_value": p_value,
            "level": self.level,
            "effect": distance,
            "effect_name": DISTANCE,
            "effect_limit": MATTERS,
            "test": "G-test, permutation of blocks of rows",
        }
        told = f"{distance:.1%} of the rows are in another segment than before, p = {p_value:.2g}"
        if p_value > self.level:
            return Evidence(p_value, level, rows, f"Chance explains the mix: {told}.", **known)
        if distance < MATTERS:
            return Evidence(p_value, None, rows, f"The mix changed, and by less than matters: {told}.", **known)
        return Evidence(p_value, level, rows, f"The mix changed: {told}.", exhibits=self.exhibits, **known)
