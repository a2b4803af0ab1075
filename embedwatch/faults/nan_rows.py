"""Rows with NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen
from embedwatch.drills.fault import Fault


class NanRows(Fault):
    """Some rows hold a NaN, as overflow in half precision leaves them."""

    name = "nan_rows"
    title = "rows with NaN"
    strength = 0.01
    strengths = (0.001, 0.01, 0.1)
    measures = "share of the rows"
    found_by = ("nonfinite_rows",)
    unseen = "One row is enough."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some hold a NaN."""
        hit = chosen(rows, generator, strength)
        places = torch.randint(rows.shape[1], (int(hit.sum()),), generator=generator)
        found = rows.clone()
        found[hit.nonzero()[:, 0], places] = torch.nan
        return found
