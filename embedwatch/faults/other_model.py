"""Another model."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen, kept_unit
from embedwatch.drills.fault import Fault, Stock

DECAY = 0.25
"""Power with which the weights of the random features fall."""


class OtherModel(Fault):
    """Some rows come from another model of the same dimension: random features of the same items, in no axes of ours.

    Where another source is named, its rows are taken instead.
    """

    name = "other_model"
    title = "another model"
    strength = 1.0
    strengths = (0.01, 0.02, 0.05, 0.1, 1.0)
    measures = "share of the rows"
    found_by = ("drift", "what_changed", "canary")
    names = ("model",)
    unseen = "A few rows among many are found as foreign content, whatever made them."

    def __init__(self, stock: Stock) -> None:
        super().__init__(stock)
        self.paired = stock.other is None

    def impossible(self, rows: int, strength: float) -> str:
        """Return whether the other source has too few rows."""
        needed, other = round(rows * strength), self.stock.other
        if other is None or len(other) >= needed:
            return ""
        return f"The other source has {len(other):,} rows, {needed:,} are needed."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some are of the other model."""
        hit = chosen(rows, generator, strength)
        found = rows.clone()
        if self.stock.other is not None:
            found[hit] = self.stock.other[: int(hit.sum())].to(rows)
            return found
        dimension = rows.shape[1]
        mixing = torch.randn(dimension, dimension, generator=generator).to(rows)
        weights = torch.arange(1, dimension + 1).to(rows) ** -DECAY
        features = torch.tanh(torch.nn.functional.normalize(rows, dim=1) @ mixing) * weights
        lengths = rows.norm(dim=1, keepdim=True)
        found[hit] = kept_unit(torch.nn.functional.normalize(features, dim=1) * lengths, rows)[hit]
        return found
