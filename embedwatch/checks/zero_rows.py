"""Rows should not be zero."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from embedwatch.core.check import LIVE, ThresholdCheck, role_of
from embedwatch.core.history import History
from embedwatch.core.snapshot import Snapshot
from embedwatch.core.verdict import Evidence, Limit

TABLES = ("token_table",)
"""Places where, as at any place of the role `table`, one zero row is the padding entry of the table, and healthy."""
FAIL_SHARE = 0.005
"""From this share of the rows on it is no oversight."""
FIRST_STEP = 1
"""Up to this step a place inside a model may be zero by design, as the second matrix of an adapter (LoRA) is made."""


class ZeroRows(ThresholdCheck):
    """No row is zero in every dimension: one is a warning, from 0.5 % of the rows on it fails.

    The padding entry of a table is zero by design, so one zero row of a table and any number of them among the outputs
    of the token embedding, where padding is not masked, are healthy. A place that is nothing but zeros is not judged
    at the first step, and that of the tokens at none.

    References: Hu et al. 2021, "LoRA", arXiv 2106.09685, section 4.1 (a matrix that starts at zero).
    """

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
    mitigation = (
        "Stored vectors: delete these rows, encode them again, and store none of empty or failed inputs. A model at "
        "work: look for dropout near 1, dead units, or a gain or weight of zero before that place."
    )

    def evaluate(self, snapshot: Snapshot, reference: Any = None, history: History | None = None) -> Evidence:
        """Return the number of zero rows; those that padding and a start at zero make are no defect."""
        found = super().evaluate(snapshot, reference, history)
        limit = Limit(warn=1, fail=max(2, math.ceil(FAIL_SHARE * found.rows)))
        if not found.value:
            return replace(found, limit=limit)
        role, step = role_of(snapshot), snapshot.provenance.step
        everything = found.value >= found.rows
        if found.value == 1 and (role == "table" or snapshot.space.place in TABLES):
            return replace(found, value=0.0, limit=limit, reason="One zero row, as padding has.")
        if role in LIVE and everything and (role == "token" or (step is not None and step <= FIRST_STEP)):
            return replace(found, value=None, limit=limit, reason="Nothing but zeros yet.", exhibits=())
        if role == "token":
            return replace(found, limit=None, reason=f"{found.value:,.0f} zero rows, as tokens of padding have.")
        return replace(found, limit=limit)
