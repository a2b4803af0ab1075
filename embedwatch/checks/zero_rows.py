"""Rows should not be zero."""

from __future__ import annotations

from typing import Any

from embedwatch.core.check import ThresholdCheck
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

TABLES = ("token_table",)
"""Places where one zero row is the padding entry of the table, and healthy."""


class ZeroRows(ThresholdCheck):
    """Next to no row is zero in every dimension."""

    name = "zero_rows"
    title = "zero rows"
    metric = "zero_rows_ratio"
    limit = Limit(warn=0.0002, fail=0.005)
    exhibits = ("zero_rows",)
    meaning = (
        "Some vectors are zero in every dimension: empty texts, failed requests stored as zeros, rows never written."
    )
    impact = (
        "A zero vector has no direction: its cosine is NaN or 0 with everything, and by dot product it is never found."
    )
    diagnosis = "Look at the inputs of the rows named in the exhibit; count how many share one source, time or worker."
    mitigation = "Do not store vectors of empty or failed inputs; delete these rows and encode them again."

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the share of zero rows; the single padding row of a token table is none."""
        evidence = super().evaluate(snapshot, reference, history)
        if snapshot.space.place in TABLES and snapshot.number("zero_rows") == 1:
            return Evidence(0.0, self.limit, evidence.rows, "One zero row, as padding has.", self.metric)
        return evidence
