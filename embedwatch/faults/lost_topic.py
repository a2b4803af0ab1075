"""A topic that is gone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embedwatch.drills.changes import thinned
from embedwatch.drills.fault import Fault


class LostTopic(Fault):
    """A region that held some of the rows holds none: a feed that stopped, a filter that drops."""

    name = "lost_topic"
    title = "a topic is gone"
    strength = 0.2
    strengths = (0.05, 0.1, 0.2, 0.5)
    measures = "share of the rows that it had"
    found_by = ("drift", "what_changed")
    names = ("content", "mix")
    unseen = "What is missing leaves no row to look at: a few percent less here and more elsewhere is what chance does."
    paired = False

    def impossible(self, rows: int, strength: float) -> str:
        """Return whether too few rows would stay."""
        needed, found = math.ceil(rows / max(1e-9, 1 - strength)), rows + len(self.stock.spare)
        return "" if found >= needed else f"{needed - found:,} more rows are needed to fill up what is taken away."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which none lies near the centre of a topic."""
        every = torch.cat([rows, self.stock.spare.to(rows)])
        centre = self.stock.centres[int(torch.randint(len(self.stock.centres), (), generator=generator))]
        apart = (every - centre.to(rows)).norm(dim=1)
        gone = torch.zeros(len(every), dtype=torch.bool)
        gone[apart.argsort(stable=True)[: round(strength * len(every))]] = True
        return thinned(rows, every[len(rows) :], ~gone)
