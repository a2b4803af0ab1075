"""Rows of zeros."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen
from embedwatch.drills.fault import Fault


class ZeroRows(Fault):
    """Some rows are all zeros, as empty texts and failed calls leave them."""

    name = "zero_rows"
    title = "rows of zeros"
    strength = 0.01
    strengths = (0.001, 0.01, 0.1)
    measures = "share of the rows"
    found_by = ("zero_rows",)
    unseen = "One row is enough."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some are zero."""
        return rows.masked_fill(chosen(rows, generator, strength)[:, None], 0)
