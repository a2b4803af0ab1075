"""Few levels for each row."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.fault import Fault


class Int8(Fault):
    """Values of each row are rounded to whole multiples of its largest over 127, as quantised indexes store them."""

    name = "int8"
    title = "rounded to 8 bits"
    strength = 8.0
    strengths = (8.0, 6.0, 4.0)
    bounds = (1.0, 16.0)
    unit = "bits"
    measures = "bits of a number that are left"
    found_by = ("drift", "what_changed", "canary")
    names = ("precision",)
    unseen = "Rounding moves what lies in directions that were nearly empty, and else nothing."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rounded rows."""
        del generator
        step = rows.abs().amax(1, keepdim=True) / (2.0 ** (round(strength) - 1) - 1)
        return torch.where(step > 0, torch.round(rows / step) * step, rows)
