"""Rows of a table that are copies of one another, or nearly so."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Sketch", "copy_groups"]

WIDTH = 24
"""Directions on which rows are projected: a distance is known within about 30 % from so many."""
WINDOW = 24
"""Each row is compared with so many that follow it along the first direction."""


class Sketch:
    """Projections of the rows of a table on a few random directions, so that distances can be told without the rows.

    `‖P (x - y)‖ ≈ ‖x - y‖` for a random matrix P with entries of variance 1 / width (Johnson & Lindenstrauss 1984).
    Equal rows have projections within rounding.

    Args:
        dimension: D.
        seed: of the directions.
    """

    def __init__(self, dimension: int, *, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._directions = torch.randn(dimension, WIDTH, generator=generator) / WIDTH**0.5
        self._parts: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """Add the next rows of the table. Shape: (N, D)."""
        self._parts.append(rows.float() @ self._directions)

    def values(self) -> Tensor:
        """Return the projections of all rows. Shape: (V, width)."""
        return torch.cat(self._parts) if self._parts else torch.zeros(0, WIDTH)


def copy_groups(projections: Tensor, *, within: float) -> Tensor:
    """Return the number of a group for each row: rows that are near one another, directly or by others, share it.

    Rows are put in order along the first direction, and compared with the next `WINDOW`: pairs that lie within `within`
    of each other may be missed where more rows than that lie between them. Rows without a finite projection, and rows
    alone, have the group -1. Rows that are zero form one group.

    Shape: (V, width) -> (V,) int64.

    Example:
        >>> rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        >>> rows[7] = rows[3]
        >>> sketch = Sketch(8)
        >>> sketch.add(rows)
        >>> groups = copy_groups(sketch.values(), within=1e-4)
        >>> (groups >= 0).nonzero()[:, 0].tolist(), bool(groups[3] == groups[7])
        ([3, 7], True)
    """
    sound = projections.isfinite().all(1).nonzero()[:, 0]
    order = sound[projections[sound, 0].argsort(stable=True)]
    first, second = _pairs(projections[order], within)
    names = _joined(len(projections), order[first], order[second])
    groups = torch.full((len(projections),), -1, dtype=torch.int64)
    alike = torch.cat([order[first], order[second]]).unique()
    groups[alike] = names[alike].unique(return_inverse=True)[1]
    return groups


def _pairs(ordered: Tensor, within: float) -> tuple[Tensor, Tensor]:
    """Return the places of rows that are near one another. Shape: (V, width) -> (P,), (P,)."""
    found = []
    for shift in range(1, min(WINDOW, len(ordered) - 1) + 1):
        near = (ordered[shift:, 0] - ordered[:-shift, 0]) <= 2 * within
        places = near.nonzero()[:, 0]
        if not len(places):
            break
        apart = torch.linalg.vector_norm(ordered[places + shift] - ordered[places], dim=1)
        close = places[apart <= within]
        found.append((close, close + shift))
    nothing = torch.zeros(0, dtype=torch.int64)
    return torch.cat([nothing, *(one for one, _ in found)]), torch.cat([nothing, *(other for _, other in found)])


def _joined(number: int, first: Tensor, second: Tensor) -> Tensor:
    """Return for each row the least row that pairs connect it with. Shape: (P,), (P,) -> (V,)."""
    names = torch.arange(number)
    while len(first):
        before = names.clone()
        least = torch.minimum(names[first], names[second])
        names.scatter_reduce_(0, first, least, "amin").scatter_reduce_(0, second, least, "amin")
        names = names[names]
        if torch.equal(names, before):
            break
    return names
