"""Dimensions that are cut off."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import kept_unit
from embedwatch.drills.fault import Fault


class Truncation(Fault):
    """The trailing dimensions are zero: shortened vectors that were filled up to fit the column."""

    name = "truncation"
    title = "dimensions are cut off"
    strength = 1 / 3
    strengths = (0.01, 0.1, 1 / 3, 0.5)
    measures = "share of the dimensions"
    found_by = ("drift", "what_changed", "dead_dimensions", "null_directions", "canary")
    names = ("truncation",)
    unseen = "A vector that really is shorter does not get this far: its dimension is another."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows with zeros at the end."""
        del generator
        dimension = rows.shape[1]
        kept = max(1, dimension - max(1, round(strength * dimension)))
        found = rows.clone()
        found[:, kept:] = 0
        return kept_unit(found, rows)
