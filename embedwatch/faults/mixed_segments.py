"""Another mixture of the same topics."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.drills.changes import thinned, topics_of
from embedwatch.drills.fault import Fault


class MixedSegments(Fault):
    """Topics with half of the rows, drawn by lot, lose most of them to the others: the same content in other shares."""

    name = "mixed_segments"
    title = "topics have other shares"
    strength = 0.8
    strengths = (0.3, 0.5, 0.8, 0.9)
    bounds = (0.0, 0.99)
    measures = "share of their rows that half of the space loses"
    found_by = ("drift", "what_changed")
    names = ("mix",)
    unseen = "Shares of many small topics change from window to window anyway."
    paired = False

    def impossible(self, rows: int, strength: float) -> str:
        """Return whether too few rows would stay."""
        needed, found = math.ceil(1.1 * rows / (1 - strength / 2)), rows + len(self.stock.spare)
        return "" if found >= needed else f"{needed - found:,} more rows are needed to fill up what is taken away."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which half of the topics have few."""
        spare = self.stock.spare.to(rows)
        topics = topics_of(torch.cat([rows, spare]), self.stock.centres)
        sizes = torch.bincount(topics, minlength=len(self.stock.centres))
        lot = torch.randperm(len(sizes), generator=generator)
        few = torch.zeros(len(sizes), dtype=torch.bool)
        few[lot[sizes[lot].cumsum(0) <= len(topics) / 2]] = True
        stays = torch.rand(len(topics), generator=generator) >= strength * few[topics].float()
        return thinned(rows, spare, stays)
