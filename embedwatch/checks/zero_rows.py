"""Rows should not be zero."""

from __future__ import annotations

import math
from typing import Any

from embedwatch.core.check import ThresholdCheck, role_of
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

TABLES = ("token_table",)
"""Places where, as at any place of the role `table`, one zero row is the padding entry of the table, and healthy."""
FAIL_SHARE = 0.005
"""From this share of the rows on it is no oversight."""


class ZeroRows(ThresholdCheck):
    """No row is zero in every dimension: one is a warning, from 0.5 % of the rows on it fails."""

    name = "zero_rows"
    title = "zero rows"
    metric = "zero_rows"
    limit = Limit(warn=1)
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
        """Return the number of zero rows; the single padding row of a token table is none."""
        evidence = super().evaluate(snapshot, reference, history)
        limit = Limit(warn=1, fail=max(2, math.ceil(FAIL_SHARE * evidence.rows)))
        if evidence.value == 1 and (role_of(snapshot) == "table" or snapshot.space.place in TABLES):
            return Evidence(0.0, limit, evidence.rows, "One zero row, as padding has.", self.metric)
        return Evidence(
            evidence.value, limit, evidence.rows, evidence.reason, self.metric, "rows", exhibits=evidence.exhibits
        )
