"""A new topic."""

from __future__ import annotations

import torch
from torch import Tensor

from embedwatch.drills.changes import chosen
from embedwatch.drills.fault import Fault


class NewTopic(Fault):
    """Some rows are about something that the reference has never seen: a k-means cell of the same source, held out."""

    name = "new_topic"
    title = "a new topic"
    strength = 0.05
    strengths = (0.02, 0.05, 0.1)
    measures = "share of the rows"
    found_by = ("drift", "what_changed")
    names = ("content",)
    unseen = (
        "Rows of the same source lie where others lie, and move neither mean nor spread by much: how crowded it is "
        "around them is all that tells them from chance."
    )
    paired = False

    def impossible(self, rows: int, strength: float) -> str:
        """Return whether too few rows were held out."""
        needed = round(rows * strength)
        if len(self.stock.topic) >= needed:
            return ""
        return f"The topic that was held out has {len(self.stock.topic):,} rows, {needed:,} are needed."

    def apply(self, rows: Tensor, generator: torch.Generator, strength: float) -> Tensor:
        """Return rows of which some are about the topic."""
        hit = chosen(rows, generator, strength)
        order = torch.randperm(len(self.stock.topic), generator=generator)
        found = rows.clone()
        found[hit] = self.stock.topic[order[: int(hit.sum())]].to(rows)
        return found
