"""Normalisation that was left out, or put in."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import are_unit
from embedwatch.drills.fault import Fault


class Normalisation(Fault):
    """Rows of length 1 get lengths of their own around 1; rows of many lengths all get length 1."""

    name = "normalisation"
    title = "normalisation is left out, or put in"
    strength = 0.1
    strengths = (0.02, 0.05, 0.1, 0.3)
    measures = "spread of the lengths, where rows had length 1"
    found_by = ("drift", "what_changed", "canary")
    names = ("normalisation",)
    unseen = "Directions stay; lengths that differ by less than 1 % are not minded."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of other lengths."""
        if not are_unit(rows):
            return torch.nn.functional.normalize(rows, dim=1)
        lengths = torch.exp(strength * torch.randn(len(rows), 1, generator=generator))
        return rows * lengths.to(rows)
