"""Rows of an older version among those of today."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen, turned
from embedwatch.drills.fault import Fault

AGE = 20.0
"""Degrees by which the older version is turned."""


class StalePart(Fault):
    """Some rows are of an older version of the model, turned by 20 degrees: a migration that did not reach all."""

    name = "stale_part"
    title = "rows of an older version"
    strength = 0.5
    strengths = (0.05, 0.1, 0.25, 0.5)
    measures = "share of the rows"
    found_by = ("drift", "what_changed", "canary")
    names = ("rotation", "model", "settings")
    unseen = (
        "Versions that are nearly alike, or a few old rows, do not move the distribution; canaries tell the version."
    )

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some are turned."""
        older = turned(rows, generator, AGE)
        return torch.where(chosen(rows, generator, strength)[:, None], older, rows)
