"""A space that turns."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import turned
from embedwatch.drills.fault import Fault


class Rotation(Fault):
    """The space turns in all planes: distances stay, and old vectors no longer compare with new ones."""

    name = "rotation"
    title = "the space turns"
    strength = 5.0
    strengths = (1.0, 2.0, 5.0, 10.0, 45.0)
    bounds = (0.0, 180.0)
    unit = "degrees"
    measures = "angle in each plane"
    found_by = ("drift", "what_changed", "canary")
    names = ("rotation",)
    unseen = "A turn that maps mean and covariance onto themselves leaves the distribution as it is; a canary sees it."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return turned rows."""
        return turned(rows, generator, strength)
