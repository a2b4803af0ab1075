"""Shorter mantissas."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.fault import Fault

FLOAT32_BITS = 24
"""Of a mantissa, with the leading one."""


class Bf16(Fault):
    """Values lose bits of their mantissa: 13 of 24 make a float16, 16 a bfloat16."""

    name = "bf16"
    title = "rounded to bfloat16"
    strength = 16.0
    strengths = (13.0, 16.0, 20.0)
    bounds = (0.0, 23.0)
    unit = "bits"
    measures = "bits of the mantissa that are cut"
    found_by = ("what_changed", "canary")
    names = ("precision",)
    unseen = "The distribution does not move, and nothing but the grid of the numbers tells."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rounded rows."""
        del generator
        mantissa, exponent = torch.frexp(rows.float())
        levels = 2.0 ** (FLOAT32_BITS - round(strength))
        return torch.ldexp(torch.round(mantissa * levels) / levels, exponent).to(rows.dtype)
