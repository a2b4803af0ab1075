"""Vectors under the ids of others."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.fault import Fault


class OffByOne(Fault):
    """Each id carries the vector of the next: the same vectors, none where it belongs."""

    name = "off_by_one"
    title = "ids are off by one"
    strength = 1.0
    strengths = (1.0,)
    bounds = (0.0, 1_000.0)
    unit = "rows"
    measures = "by how many"
    found_by = ("canary",)
    unseen = "The set of vectors is the same: only what compares each item with itself, a canary, can tell."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return the rows, moved along."""
        del generator
        return rows.roll(-max(1, round(strength)), 0)
