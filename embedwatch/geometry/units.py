"""Units: rows without the usual mean, in units of their usual spread, none farther than others can weigh."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["FARTHEST", "Units"]

FARTHEST = 64.0
"""A row that lies farther from the mean, in units, is drawn in to there: one row must not weigh like thousands."""


class Units(NamedTuple):
    """A mean and a length.

    Args:
        centre: mean of usual rows, (D,) float64.
        size: root mean square of their distance from it, () float64; 1 where they do not vary.
    """

    centre: Tensor
    size: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Units:
        """Return the units of a sample of rows. Shape: (N, D).

        Example:
            >>> units = Units.of(torch.tensor([[1.0, 1.0], [3.0, 1.0]]))
            >>> units.centre.tolist(), float(units.size)
            ([2.0, 1.0], 1.0)
        """
        wide = rows.double().cpu()
        if not len(wide):
            return cls(wide.new_zeros(rows.shape[1]), torch.tensor(1.0, dtype=torch.float64))
        centre = wide.mean(0)
        size = (wide - centre).norm(dim=1).square().mean().sqrt()
        return cls(centre, size if bool(size > 0) and bool(size.isfinite()) else torch.ones_like(size))

    def apply(self, rows: Tensor) -> Tensor:
        """Return rows in these units. Shape: (N, D) -> (N, D) float64."""
        moved = rows.double() - self.centre.to(rows.device)
        apart = moved.norm(dim=1, keepdim=True) / self.size.to(rows.device)  # (N, 1)
        found: Tensor = moved / (self.size.to(rows.device) * (apart / FARTHEST).clamp(min=1.0))
        return found
