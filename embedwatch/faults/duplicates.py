"""Rows that repeat."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen
from embedwatch.drills.fault import Fault


class Duplicates(Fault):
    """Some rows repeat an earlier one, bit for bit: a job that ran twice, a default for what failed."""

    name = "duplicates"
    title = "rows that repeat"
    strength = 0.05
    strengths = (0.01, 0.05, 0.2)
    measures = "share of the rows"
    found_by = ("duplicate_rows",)
    unseen = "Where rows repeat in health too, the check is not asked."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some equal one before them."""
        places = chosen(rows, generator, strength).nonzero()[:, 0].clamp(min=min(1, len(rows) - 1))
        before = (torch.rand(len(places), generator=generator) * places).long()
        found = rows.clone()
        for place, earlier in zip(places.tolist(), before.tolist(), strict=True):
            found[place] = found[earlier]  # in order: what is repeated may be a repeat
        return found
