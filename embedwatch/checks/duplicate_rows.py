"""Rows should not repeat."""

from __future__ import annotations

from embedwatch.core.check import STORED, ThresholdCheck
from embedwatch.core.verdict import Limit


class DuplicateRows(ThresholdCheck):
    """Few rows repeat another bit for bit."""

    name = "duplicate_rows"
    title = "duplicate rows"
    metric = "duplicate_rows_ratio"
    roles = STORED
    limit = Limit(warn=0.002, fail=0.2)
    exhibits = ("duplicate_rows",)
    meaning = (
        "Rows occur more than once, bit for bit: the same input stored twice, a block written again, a default vector."
    )
    impact = "Repeats fill the top of every result list, hide other answers, and weigh averages and training."
    diagnosis = "Look at the pairs named in the exhibit: same text, same key, or neighbouring row numbers of a block?"
    mitigation = "Deduplicate by content before encoding, make writes idempotent by key, delete the repeated block."
