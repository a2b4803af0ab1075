"""Noise in every number."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import kept_unit
from embedwatch.drills.fault import Fault


class Noise(Fault):
    """Every row gets noise of its own in all directions: a wrong dropout, a broken kernel, privacy noise."""

    name = "noise"
    title = "noise"
    strength = 0.1
    strengths = (0.02, 0.05, 0.1, 0.2)
    bounds = (0.0, 100.0)
    measures = "length of the noise over that of the row"
    found_by = ("drift", "what_changed", "canary")
    names = ("noise",)
    unseen = "Noise shows first in directions of little variance; below theirs it is not there."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return noisy rows."""
        drawn = torch.randn(rows.shape, generator=generator).to(rows) / rows.shape[1] ** 0.5
        return kept_unit(rows + strength * rows.norm(dim=1, keepdim=True) * drawn, rows)
