"""Norms that grow."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.fault import Fault


class NormGrowth(Fault):
    """All rows get longer by the same factor, as vectors do in a model that is trained on without decay."""

    name = "norm_growth"
    title = "norms grow"
    strength = 0.05
    strengths = (0.01, 0.02, 0.05, 0.1, 0.2)
    bounds = (0.0, 100.0)
    measures = "by how much"
    found_by = ("drift", "what_changed", "canary")
    names = ("norms",)
    unseen = "Below 1 % norms change by less than the check `drift` minds."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return longer rows."""
        del generator
        return rows * (1 + strength)
