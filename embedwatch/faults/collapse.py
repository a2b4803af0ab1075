"""Rows that fall together."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import kept_unit
from embedwatch.drills.fault import Fault


class Collapse(Fault):
    """Each row moves toward the mean of all by the same share of its way: contrast is lost."""

    name = "collapse"
    title = "rows fall together"
    strength = 0.1
    strengths = (0.02, 0.05, 0.1, 0.3, 1.0)
    measures = "share of the way to the mean"
    found_by = ("drift", "what_changed", "collapse", "canary")
    names = ("collapse",)
    unseen = "A few percent change distances by less than one topic more or less does."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows nearer to the mean."""
        del generator
        return kept_unit(rows + strength * (self.stock.mean.to(rows) - rows), rows)
