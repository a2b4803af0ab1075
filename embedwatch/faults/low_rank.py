"""Directions that are lost."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import kept_unit
from embedwatch.drills.fault import Fault


class LowRank(Fault):
    """Rows lie in fewer directions: those of least variance are gone, as after compression by principal components."""

    name = "low_rank"
    title = "directions are lost"
    strength = 1 / 3
    strengths = (0.1, 1 / 3, 0.5, 0.8)
    measures = "share of the directions"
    found_by = ("drift", "what_changed", "rank_collapse", "null_directions", "canary")
    names = ("rank",)
    unseen = "Directions that carried nothing leave nothing behind."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows in the directions of largest variance."""
        del generator
        dimension = rows.shape[1]
        kept = max(1, dimension - max(1, round(strength * dimension)))
        mean = self.stock.mean.to(rows)
        known = torch.cat([rows, self.stock.spare.to(rows)]).double() - mean
        directions = torch.linalg.eigh(known.T @ known).eigenvectors[:, -kept:].to(rows.dtype)
        return kept_unit(mean + (rows - mean) @ directions @ directions.T, rows)
