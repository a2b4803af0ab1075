"""Positions of a grid, as of the patches of an image: whether a table knows rows and columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embedwatch.core.errors import UsageError

__all__ = ["Grid", "grid_cosines"]

MOST = 4096
"""So many places are compared pair by pair."""


@dataclass(frozen=True)
class Grid:
    """How alike places of a grid are, as mean cosines after the common mean is taken away.

    Args:
        across: of neighbours in one row.
        down: of neighbours in one column: below 0 or near it where a table knows the order of reading only.
        wrap: of the end of a row and the start of the next, which follow one another only where an image is read as a
            line.
        far: of places at least half the grid apart.
        axes: share of the table that is a part of the row plus a part of the column: of a table of independent rows
            `(height + width - 2) / (height · width - 1)`.
    """

    across: float
    down: float
    wrap: float
    far: float
    axes: float


def grid_cosines(rows: Tensor, height: int, width: int) -> Grid:
    """Return how alike places of a grid are by the way from one to the other.

    Shape: (height · width, D), line by line.

    Raises:
        UsageError: if the rows do not make this grid, or are more than 4,096.

    Example:
        >>> down, across = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
        >>> grid = grid_cosines(torch.stack([down.flatten(), across.flatten()], 1), 6, 6)
        >>> grid.axes > 0.999, grid.across > 0.5 > grid.wrap
        (True, True)
    """
    if min(height, width) < 2 or len(rows) != height * width or len(rows) > MOST:
        raise UsageError(
            f"`rows` must be {height} x {width} places, 4 to {MOST:,} in all, got {len(rows):,}; "
            "leave out the row of a class token"
        )
    exact = rows.double() - rows.double().mean(0)
    unit = functional.normalize(exact, dim=1)
    grid = unit.view(height, width, -1)
    places = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"), -1).view(-1, 2)
    apart = (places[:, None] - places[None]).abs() / torch.tensor([height / 2, width / 2])  # (N, N, 2)
    far = (unit @ unit.T)[(apart >= 1).any(2)]
    table = exact.view(height, width, -1)
    sums = table.mean(1, keepdim=True) + table.mean(0, keepdim=True)
    total = float(table.square().sum())
    return Grid(
        across=float((grid[:, 1:] * grid[:, :-1]).sum(2).mean()),
        down=float((grid[1:] * grid[:-1]).sum(2).mean()),
        wrap=float((grid[:-1, -1] * grid[1:, 0]).sum(1).mean()),
        far=float(far.mean()),
        axes=float(sums.expand_as(table).square().sum()) / total if total > 0 else math.nan,
    )
